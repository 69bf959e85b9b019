"""Sends requests to external services (`core.asking.service.Service`) over HTTP, and repeats them after failures."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

import aiohttp

from core.asking.service import Service
from core.texts.redaction import redacted
from core.texts.unicode import from_json, without_commands
from core.waiting.retries import Attempts, is_transient, seconds_of
from services.inference.breaker import breaker_of
from services.inference.client import InferenceError, open_session
from services.inference.keys import keys_of

T = TypeVar("T")
R = TypeVar("R")

_REFUSED = frozenset({400, 413, 422})
_BUSY = frozenset({409, 429})  # transient, but of a service that works
LARGEST_REPLY = 1 << 26  # bytes, decompressed; ten times the embeddings of one request
_HTTP_FAILURE = re.compile("[45][0-9]{2}")
# A service that says in words that another attempt may succeed.
_PASSING = re.compile(
    r"rate.?limit|overload|time.?out|timed out|unavailable|busy|try again|capacity|server.?error", re.I
)


class RequestRefused(InferenceError):
    """Raised when a service refuses this particular request; it may still answer other requests."""


async def ask_each(
    service: Service, items: Iterable[T], ask: Callable[[aiohttp.ClientSession, T], Awaitable[R]], at_once: int
) -> list[R]:
    """Call `ask` for each item, for at most `at_once` items at a time, and return the results in order.

    The first call that raises cancels the others. A service that was down is first asked about one item alone. Raises
    what `ask` raises, and `InferenceError` if the service's key is not set or the service is left alone because it is
    down.
    """
    slots, waiting, first = asyncio.Semaphore(at_once), iter(items), list[R]()
    key = keys_of([service]).get(service.key_variable or "")
    async with open_session(service.url, {} if key is None else {"Authorization": f"Bearer {key}"}) as http:
        if breaker_of(service).admit():
            first = [await ask(http, item) for item in islice(waiting, 1)]

        async def ask_in_slot(item: T) -> R:
            async with slots:
                return await ask(http, item)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask_in_slot(item)) for item in waiting]
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
    return first + [task.result() for task in tasks]


async def post(http: aiohttp.ClientSession, service: Service, route: str, body: dict[str, Any]) -> Any:
    """Send `body` to a route of the service and return the JSON of its reply.

    A failure that may pass by itself is followed by another attempt, up to `service.attempts` in all and within
    `service.deadline` seconds, unless the service is found to be down (`services.inference.breaker`). The pauses grow,
    and none is shorter than the service asks for in Retry-After. Raises `RequestRefused` and `InferenceError`.
    """
    attempts = Attempts(max(service.deadline, service.timeout), service.attempts)
    breaker = breaker_of(service)
    while True:
        try:
            async with (
                asyncio.timeout(min(service.timeout, attempts.remaining_s)),
                # Redirects are not followed, because their target would get the key.
                http.post(f"{service.url}/{route}", json=body, allow_redirects=False) as response,
            ):
                status, retry_after_s = response.status, seconds_of(response.headers.get("Retry-After"))
                received = bytearray()
                async for part in response.content.iter_any():
                    received += part
                    if len(received) > LARGEST_REPLY:  # at once, since a body may have no end
                        expected = f"expected a reply of at most {LARGEST_REPLY:,} bytes"
                        raise InferenceError(f"{response.url}: {expected}, got more")
                content = bytes(received)
        except (aiohttp.ClientError, TimeoutError) as error:
            status, retry_after_s, failure = None, 0.0, f"{type(error).__name__}: {error}"
        else:
            failure = "" if status == 200 else f"HTTP {status}: {_quoted(service, content)}"
            if status == 200 and (within := _status_within(content)) is not None:
                status, failure = within, f"HTTP 200 with an error: {_quoted(service, content)}"
        may_pass = status is None or is_transient(status)
        if may_pass and status not in _BUSY:
            breaker.failed(failure)
        else:
            breaker.answered()
        if status == 200:
            try:
                return from_json(content)
            except ValueError as error:
                raise InferenceError(f"{service.url}: {route}: expected JSON: {error}") from error
        if status in _REFUSED:
            raise RequestRefused(f"{service.url}: {route}: {failure}")
        if not may_pass or breaker.is_down or not await attempts.async_pause(retry_after_s):
            breaker.gave_up()
            raise InferenceError(f"{service.url}: {route}: {failure}")


def _status_within(content: bytes) -> int | None:
    """The HTTP status that fits the error in a reply of status 200; None if there is none. The error is a field of the
    reply or of its first choice, or the reply itself."""
    if b'"error"' not in content:
        return None
    try:
        reply = from_json(content)
    except ValueError:
        return None
    choices = reply.get("choices") if isinstance(reply, dict) else None
    holders = (reply, choices[0] if isinstance(choices, list) and choices else None)
    error = next((_error_of(holder) for holder in holders if isinstance(holder, dict) and _error_of(holder)), None)
    if error is None:
        return None
    code = str(error.get("code")) if isinstance(error, dict) else ""
    if _HTTP_FAILURE.fullmatch(code):
        return int(code)
    return 503 if _PASSING.search(str(error)[:2_000]) else 501  # of which the first is repeated


def _error_of(holder: dict[str, Any]) -> Any:
    """The error in a reply or in a choice; None if there is none."""
    if holder.get("object") == "error":  # older servers
        return holder
    if holder.get("finish_reason") == "error":  # the reply broke off
        return holder.get("error") or "server error"
    return holder.get("error")


def _quoted(service: Service, content: bytes) -> str:
    """The beginning of a failed reply for an error message, which is shown in terminals and kept in logs. A service may
    repeat the key that it was sent."""
    text = redacted(content[:4_000].decode(errors="replace"), keys_of([service]).values())
    return without_commands(text)[:300]
