"""Asking other people's services (`core.serving_settings.Service`) over HTTP, again where a failure may pass."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from core.serving_settings import Service
from core.unicode import from_json
from services.inference.client import PASSING, InferenceError
from services.inference.keys import keys_of

_REFUSED = frozenset({400, 413, 422})
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_LONGEST_WISH_S = 60.0  # of what a service asks for in Retry-After


class RequestRefused(InferenceError):
    """A service will not answer this very request, but may answer another."""


def headers(service: Service) -> dict[str, str]:
    """What carries the service's key. Raises `InferenceError` where its variable is not set."""
    key = keys_of([service]).get(service.key_variable or "")
    return {} if key is None else {"Authorization": f"Bearer {key}"}


async def post(http: httpx.AsyncClient, service: Service, route: str, body: dict[str, Any]) -> Any:
    """The reply's JSON; what may pass by itself is tried again after a growing pause, or as long as the service asks
    for, `service.attempts` times in all. Raises `RequestRefused` and `InferenceError`."""
    pause, failure = _FIRST_PAUSE_S, ""
    for attempt in range(service.attempts):
        if attempt:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        try:
            response = await http.post(f"{service.url}/{route}", json=body)
            if response.status_code == 200:
                return from_json(response.content)
        except httpx.TransportError as error:
            failure = f"{type(error).__name__}: {error}"
            continue
        except ValueError as error:
            raise InferenceError(f"{service.url}: {route}: expected JSON: {error}") from error
        failure = f"HTTP {response.status_code}: {response.text[:300]}"
        if response.status_code in _REFUSED:
            raise RequestRefused(f"{service.url}: {route}: {failure}")
        if response.status_code not in PASSING:
            break
        pause = max(pause, _wish(response))
    raise InferenceError(f"{service.url}: {route}: {failure}")


def _wish(response: httpx.Response) -> float:
    """The seconds of a Retry-After header; 0 without one, or where it is a date."""
    given = response.headers.get("Retry-After", "")
    return min(float(given), _LONGEST_WISH_S) if given.isascii() and given.isdigit() else 0.0
