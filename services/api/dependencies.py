"""What routes take: parts of paths, and a transaction to read in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial, wraps
from typing import Annotated, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import Depends, Path, Query, Request, Response
from pydantic import BaseModel
from sqlalchemy.orm import Session

from services.api.pages import LARGEST_PAGE
from storage.queries.runs import RUN_NAME
from storage.session import Store

_LARGEST = 2**31 - 1
P = ParamSpec("P")
R = TypeVar("R")


def in_own_threads(name: str, count: int) -> Callable[[Callable[P, R]], Callable[P, Awaitable[R]]]:
    """A decorator: the functions that it is put on run in `count` threads, which they share with no others. FastAPI has
    40 threads for all other routes. A call that waits for its turn holds no thread."""
    limiters: RunVar[CapacityLimiter] = RunVar(name)

    def decorated(function: Callable[P, R]) -> Callable[P, Awaitable[R]]:
        @wraps(function)
        async def in_a_thread(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                limiter = limiters.get()
            except LookupError:
                limiters.set(limiter := CapacityLimiter(count))
            return await to_thread.run_sync(partial(function, *args, **kwargs), limiter=limiter)

        return in_a_thread

    return decorated


# For the most frequent routes, which only read the store for a moment. They compete for the interpreter, which one
# thread has at a time, more than they wait for the database: with 40 threads a page's p99 is several times as long. The
# other routes keep enough threads to wait for Prefect or a writer.
frequent_route = in_own_threads("frequent routes", 3)


def _reading(request: Request) -> Iterator[Session]:
    with request.app.state.store.read() as session:
        yield session


async def _store(request: Request) -> Store:  # waits for nothing, and so needs no thread
    store: Store = request.app.state.store
    return store


def as_json(model: BaseModel) -> Response:
    """An answer that is what it should be already; FastAPI would check it again, in one more thread."""
    return Response(model.model_dump_json(), media_type="application/json")


ReadSession = Annotated[Session, Depends(_reading)]
# For the most frequent routes: to open a session in the route itself, rather than in a thread before it and one
# after it, is a third of a page's cost.
StoreDependency = Annotated[Store, Depends(_store)]
RunName = Annotated[str, Path(pattern=f"^{RUN_NAME.pattern}$", examples=["demo"])]
Iteration = Annotated[int, Path(ge=0, le=_LARGEST, examples=[1])]
Index = Annotated[int, Path(ge=0, le=_LARGEST, examples=[42])]
Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="Entries a page.")]
After = Annotated[str | None, Query(max_length=200, description="`next` of the page before.")]
