"""Fetches data sets from the Hugging Face hub, which has every public data set as Parquet files too."""

from __future__ import annotations

import os
from pathlib import Path

import httpx

from core.errors import CoevoError
from core.files import make_folder, replacing
from core.settings.evaluation import Hub
from core.waiting.retries import Attempts, is_transient, seconds_of
from services.listeners import guard

_LARGEST = 1 << 30  # bytes; a benchmark is far smaller
_TIMEOUT = httpx.Timeout(60.0, connect=10.0)  # seconds without a byte, and for the connection
_ATTEMPTS, _DEADLINE_S = 3, 900.0


class HubError(CoevoError):
    """A data set that cannot be fetched; the message says why."""


def fetch(source: Hub, file: Path) -> Path:
    """Fetch the first Parquet file of a data set's split to `file`; it appears only when it is complete.

    `$HF_ENDPOINT` replaces the hub's address, and `$HF_TOKEN` is sent, as with Hugging Face's own tools. Raises
    `HubError`.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    url = f"{endpoint}/api/datasets/{source.dataset}/parquet/{source.config}/{source.split}/0.parquet"
    token = os.environ.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}  # httpx sends it to no other host
    if token:
        guard(endpoint)
    make_folder(file.parent)
    attempts = Attempts(_DEADLINE_S, _ATTEMPTS)
    while True:
        try:
            _fetch_once(source, url, headers, file, attempts)
            return file
        except httpx.HTTPError as error:
            headers_of_answer = error.response.headers if isinstance(error, httpx.HTTPStatusError) else httpx.Headers()
            if not attempts.pause(seconds_of(headers_of_answer.get("Retry-After"))):
                raise HubError(
                    f"{source.dataset} cannot be fetched from {endpoint}: {error or type(error).__name__}"
                ) from error


def _fetch_once(source: Hub, url: str, headers: dict[str, str], file: Path, attempts: Attempts) -> None:
    """Raises `HubError`, and `httpx.HTTPError` for a failure that may pass by itself."""
    with (
        replacing(file) as temporary,
        httpx.stream("GET", url, headers=headers, timeout=_TIMEOUT, follow_redirects=True) as response,
    ):
        if is_transient(response.status_code):
            response.raise_for_status()
        if response.status_code != httpx.codes.OK:
            hint = " (set HF_TOKEN, and accept its terms on the hub)" if response.status_code in (401, 403) else ""
            raise HubError(f"the hub answered HTTP {response.status_code} for {source.dataset}{hint}")
        size = 0
        with temporary.open("wb") as content:
            for chunk in response.iter_bytes():
                size += len(chunk)
                if size > _LARGEST:
                    raise HubError(f"{source.dataset} is larger than {_LARGEST:,} bytes")
                if not attempts.remaining_s:
                    raise HubError(f"{source.dataset} has not arrived within {_DEADLINE_S:g} s")
                content.write(chunk)
