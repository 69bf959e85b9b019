"""Sends requests to external services (`core.settings.serving.Service`) over HTTP, and repeats them after failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import aiohttp

from core.redaction import redacted
from core.settings.serving import Service
from core.unicode import from_json, without_commands
from services.inference.client import PASSING, InferenceError, open_session
from services.inference.keys import keys_of

T = TypeVar("T")
R = TypeVar("R")

_REFUSED = frozenset({400, 413, 422})
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
LARGEST_REPLY = 1 << 26  # bytes, decompressed; ten times the embeddings of one request
MOST_TOKENS = 2**31 - 1  # that a service may say one request took
_LONGEST_RETRY_AFTER_S = 60.0  # a longer pause in a service's Retry-After header is cut to this


class RequestRefused(InferenceError):
    """Raised when a service refuses this particular request; it may still answer other requests."""


async def ask_each(
    service: Service, items: Iterable[T], ask: Callable[[aiohttp.ClientSession, T], Awaitable[R]], at_once: int
) -> list[R]:
    """Call `ask` for each item, for at most `at_once` items at a time, and return the results in order.

    The first call that raises cancels the others. Raises what `ask` raises, and `InferenceError` if the service's key
    is not set.
    """
    slots = asyncio.Semaphore(at_once)
    async with open_session(_headers(service), total_s=service.timeout) as http:

        async def ask_in_slot(item: T) -> R:
            async with slots:
                return await ask(http, item)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask_in_slot(item)) for item in items]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _headers(service: Service) -> dict[str, str]:
    key = keys_of([service]).get(service.key_variable or "")
    return {} if key is None else {"Authorization": f"Bearer {key}"}


async def post(http: aiohttp.ClientSession, service: Service, route: str, body: dict[str, Any]) -> Any:
    """Send `body` to a route of the service and return the JSON of its reply.

    A failure that may pass by itself is followed by another attempt, up to `service.attempts` in all. The pause before
    it grows each time, and is at least as long as the service asks for in Retry-After. Raises `RequestRefused` and
    `InferenceError`.
    """
    pause, failure = _FIRST_PAUSE_S, ""
    for attempt in range(service.attempts):
        if attempt:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        try:
            # Redirects are not followed, because their target would get the key.
            async with http.post(f"{service.url}/{route}", json=body, allow_redirects=False) as response:
                content = await _bounded(response)
        except (aiohttp.ClientError, TimeoutError) as error:
            failure = f"{type(error).__name__}: {error}"
            continue
        if response.status == 200:
            try:
                return from_json(content)
            except ValueError as error:
                raise InferenceError(f"{service.url}: {route}: expected JSON: {error}") from error
        failure = f"HTTP {response.status}: {_quoted(service, content)}"
        if response.status in _REFUSED:
            raise RequestRefused(f"{service.url}: {route}: {failure}")
        if response.status not in PASSING:
            break
        pause = max(pause, _retry_after(response))
    raise InferenceError(f"{service.url}: {route}: {failure}")


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    """The body of a reply. Raises `InferenceError` as soon as it is too large, since a body may have no end."""
    content = bytearray()
    async for part in response.content.iter_any():
        content += part
        if len(content) > LARGEST_REPLY:
            raise InferenceError(f"{response.url}: expected a reply of at most {LARGEST_REPLY:,} bytes, got more")
    return bytes(content)


def _quoted(service: Service, content: bytes) -> str:
    """The beginning of a failed reply for an error message, which is shown in terminals and kept in logs. A service may
    repeat the key that it was sent."""
    text = redacted(content[:4_000].decode(errors="replace"), keys_of([service]).values())
    return without_commands(text)[:300]


def _retry_after(response: aiohttp.ClientResponse) -> float:
    """The seconds in the Retry-After header; 0 if there is none or it holds a date."""
    value = response.headers.get("Retry-After", "")
    return min(float(value), _LONGEST_RETRY_AFTER_S) if value.isascii() and value.isdigit() else 0.0
