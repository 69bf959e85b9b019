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
# Threads that answer the routes asked most. They want the interpreter, which only one has at a time, more than they
# wait for the database: with FastAPI's 40 threads a page's p99 is several times as long.
_FEW = 3
_few: RunVar[CapacityLimiter] = RunVar("few")
P = ParamSpec("P")
R = TypeVar("R")


def asked_most(route: Callable[P, R]) -> Callable[P, Awaitable[R]]:
    """A route in one of a few threads of its like, which waits for nothing but a read of the store that is soon done.
    The others have threads enough to wait for Prefect, a writer, or a file that is made."""

    @wraps(route)
    async def in_few_threads(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            limiter = _few.get()
        except LookupError:
            _few.set(limiter := CapacityLimiter(_FEW))
        return await to_thread.run_sync(partial(route, *args, **kwargs), limiter=limiter)

    return in_few_threads


def _reading(request: Request) -> Iterator[Session]:
    with request.app.state.store.read() as session:
        yield session


async def _store(request: Request) -> Store:  # waits for nothing, and so needs no thread
    store: Store = request.app.state.store
    return store


def as_json(found: BaseModel) -> Response:
    """An answer that is what it should be already; FastAPI would check it again, in one more thread."""
    return Response(found.model_dump_json(), media_type="application/json")


Reading = Annotated[Session, Depends(_reading)]
# For the routes that are asked most: to open a session in the route itself, rather than in a thread before it and one
# after it, is a third of a page's cost.
OfStore = Annotated[Store, Depends(_store)]
RunName = Annotated[str, Path(pattern=f"^{RUN_NAME.pattern}$", examples=["demo"])]
Iteration = Annotated[int, Path(ge=0, le=_LARGEST, examples=[1])]
Index = Annotated[int, Path(ge=0, le=_LARGEST, examples=[42])]
Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="Entries a page.")]
After = Annotated[str | None, Query(max_length=200, description="`next` of the page before.")]
