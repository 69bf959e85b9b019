"""Parameters and dependencies that routes share: parts of paths, paging, and sessions for reading the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache, partial, wraps
from typing import Annotated, Any, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import FastAPI, Path, Query, Request, Response, params
from pydantic import TypeAdapter

from services.api.installation import Installation
from services.client import LARGEST_PAGE
from services.prefect.client import Prefect
from storage.queries.runs import RUN_NAME
from storage.session import CONNECTIONS, Store

_LARGEST = 2**31 - 1
P = ParamSpec("P")
R = TypeVar("R")


own_threads: dict[str, int] = {}  # name -> how many threads have only this work


@asynccontextmanager
async def limited_threads(app: FastAPI) -> AsyncIterator[None]:
    """While the application serves, it has as many threads as connections to the database, so that no thread waits for
    a connection. With FastAPI's 40 shared threads, a busy API needed more memory and answered later.

    At the end, exports that are being written are given up: the process could not end before their threads do.
    """
    to_thread.current_default_thread_limiter().total_tokens = CONNECTIONS - sum(own_threads.values())
    app.state.ending.clear()
    try:
        yield
    finally:
        app.state.ending.set()


def in_own_threads(name: str, count: int) -> Callable[[Callable[P, R]], Callable[P, Awaitable[R]]]:
    """A decorator that runs functions in `count` threads of their own. All other routes share the rest of the threads
    (`limited_threads`). A call that waits for one of the `count` threads holds no thread meanwhile."""
    limiters: RunVar[CapacityLimiter] = RunVar(name)
    own_threads[name] = count

    def decorator(function: Callable[P, R]) -> Callable[P, Awaitable[R]]:
        @wraps(function)
        async def in_a_thread(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                limiter = limiters.get()
            except LookupError:
                limiters.set(limiter := CapacityLimiter(count))
            return await to_thread.run_sync(partial(function, *args, **kwargs), limiter=limiter)

        return in_a_thread

    return decorator


# For the most frequent routes, which only read the store for a moment. They wait less for the database than for the
# interpreter, which only one thread can hold at a time: with 40 threads, a page's p99 is several times as long. The
# other routes keep threads to wait for Prefect or for a writer.
frequent_route = in_own_threads("frequent routes", 3)


_adapter_of = cache(TypeAdapter)


def as_json(answer: object) -> Response:
    """Make the response of an answer that is valid already: a pydantic model, or a dataclass. FastAPI would validate it
    again, in another thread."""
    adapter = _adapter_of(type(answer))  # type: ignore[arg-type]  # mypy takes classes for unhashable
    return Response(adapter.dump_json(answer), media_type="application/json")


def _state(name: str) -> params.Depends:
    """A dependency on what `create_app` has made of this name."""

    async def of(request: Request) -> Any:  # async, because it waits for nothing and needs no thread
        return getattr(request.app.state, name)

    return params.Depends(of)


# Routes open a session and close it themselves, in one thread. FastAPI would close that of a dependency only when the
# response is sent, and the request would wait for another thread before that, as the response is validated in one. If
# all threads then wait for a writer or a connection, they wait for this request, and it waits for them.
StoreDependency = Annotated[Store, _state("store")]
PrefectDependency = Annotated[Prefect, _state("prefect")]
InstallationDependency = Annotated[Installation, _state("installation")]
RunName = Annotated[str, Path(pattern=f"^{RUN_NAME.pattern}$", examples=["demo"])]
Iteration = Annotated[int, Path(ge=0, le=_LARGEST, examples=[1])]
Index = Annotated[int, Path(ge=0, le=_LARGEST, examples=[42])]
Limit = Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="Entries per page.")]
After = Annotated[str | None, Query(max_length=200, description="`next` of the previous page.")]
