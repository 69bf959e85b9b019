"""Fetches data sets from the Hugging Face hub, which has every public data set as Parquet files too."""

from __future__ import annotations

import os
from pathlib import Path

import httpx

from core.errors import CoevoError
from core.files import make_folder, replacing
from core.settings.evaluation import Hub

_LARGEST = 1 << 30  # bytes; a benchmark is far smaller
_SECONDS = 60.0  # without a byte


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
    make_folder(file.parent)
    try:
        with (
            replacing(file) as temporary,
            httpx.stream("GET", url, headers=headers, timeout=_SECONDS, follow_redirects=True) as response,
        ):
            if response.status_code != httpx.codes.OK:
                hint = " (set HF_TOKEN, and accept its terms on the hub)" if response.status_code in (401, 403) else ""
                raise HubError(f"the hub answered HTTP {response.status_code} for {source.dataset}{hint}")
            _write(response, temporary, source)
    except httpx.HTTPError as error:
        raise HubError(
            f"{source.dataset} cannot be fetched from {endpoint}: {error or type(error).__name__}"
        ) from error
    return file


def _write(response: httpx.Response, temporary: Path, source: Hub) -> None:
    size = 0
    with temporary.open("wb") as file:
        for chunk in response.iter_bytes():
            size += len(chunk)
            if size > _LARGEST:
                raise HubError(f"{source.dataset} is larger than {_LARGEST:,} bytes")
            file.write(chunk)
