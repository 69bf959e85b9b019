"""Asking other people's services (`core.settings.serving.Service`) over HTTP, again where a failure may pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import aiohttp

from core.settings.serving import Service
from core.unicode import from_json
from services.inference.client import PASSING, InferenceError, open_session
from services.inference.keys import keys_of

T = TypeVar("T")
R = TypeVar("R")

_REFUSED = frozenset({400, 413, 422})
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_LONGEST_WISH_S = 60.0  # of what a service asks for in Retry-After


class RequestRefused(InferenceError):
    """A service will not answer this very request, but may answer another."""


async def ask_each(
    service: Service, items: Iterable[T], ask: Callable[[aiohttp.ClientSession, T], Awaitable[R]], at_once: int
) -> list[R]:
    """What `ask` makes of each item, in their order, with `at_once` of them under way. The first that raises ends the
    others. Raises what `ask` does, and `InferenceError` where the service's key is not set."""
    slots = asyncio.Semaphore(at_once)
    async with open_session(_headers(service), total_s=service.timeout) as http:

        async def one(item: T) -> R:
            async with slots:
                return await ask(http, item)

        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(one(item)) for item in items]
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
    return [task.result() for task in running]


def _headers(service: Service) -> dict[str, str]:
    key = keys_of([service]).get(service.key_variable or "")
    return {} if key is None else {"Authorization": f"Bearer {key}"}


async def post(http: aiohttp.ClientSession, service: Service, route: str, body: dict[str, Any]) -> Any:
    """The reply's JSON; what may pass by itself is tried again after a growing pause, or as long as the service asks
    for, `service.attempts` times in all. Raises `RequestRefused` and `InferenceError`."""
    pause, failure = _FIRST_PAUSE_S, ""
    for attempt in range(service.attempts):
        if attempt:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        try:
            # A service that sends the request elsewhere is not asked there: it would get the key.
            async with http.post(f"{service.url}/{route}", json=body, allow_redirects=False) as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            failure = f"{type(error).__name__}: {error}"
            continue
        if response.status == 200:
            try:
                return from_json(content)
            except ValueError as error:
                raise InferenceError(f"{service.url}: {route}: expected JSON: {error}") from error
        failure = f"HTTP {response.status}: {content[:300].decode(errors='replace')}"
        if response.status in _REFUSED:
            raise RequestRefused(f"{service.url}: {route}: {failure}")
        if response.status not in PASSING:
            break
        pause = max(pause, _wish(response))
    raise InferenceError(f"{service.url}: {route}: {failure}")


def _wish(response: aiohttp.ClientResponse) -> float:
    """The seconds of a Retry-After header; 0 without one, or where it is a date."""
    given = response.headers.get("Retry-After", "")
    return min(float(given), _LONGEST_WISH_S) if given.isascii() and given.isdigit() else 0.0
