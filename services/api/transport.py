"""The client's requests to the REST API, and its downloads, which can be continued after an interruption."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from core.errors import CoevoError
from core.files import put
from services.api.schemas import Manifest, RecordManifest


class ApiError(CoevoError):
    """The API refused a request, whose reason is in the message, or it did not answer."""


@dataclass(frozen=True, slots=True)
class Transport:
    """The API's address and key, and how long a request waits for the next bytes. All methods raise `ApiError`."""

    url: str
    key: str | None = field(repr=False)
    timeout_s: float

    def json(self, method: str, path: str, **options: Any) -> Any:
        with self._response(method, path, {}, **options) as response:
            response.read()
            return response.json()

    def file(self, path: str, manifest: Manifest | RecordManifest, to: Path, **options: Any) -> None:
        """Download the file that `manifest` describes to `to`. An interrupted download is continued.

        What has arrived is in a file beside `to`, whose name contains the sha256, so it is never continued with another
        file.
        """
        part = to.with_name(f"{to.name}.{manifest.sha256}.part")
        for other in set(_parts_of(to)) - {part}:
            other.unlink(missing_ok=True)
        if not part.exists() or part.stat().st_size != manifest.bytes:
            self._fetch(path, manifest, part, **options)
        with part.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != manifest.sha256:
            part.unlink()
            raise ApiError(f"{to}: expected the sha256 {manifest.sha256}, got {digest}. Download it again")
        put(part, to)

    def _fetch(self, path: str, manifest: Manifest | RecordManifest, part: Path, **options: Any) -> None:
        etag, received = f'"{manifest.sha256}"', part.stat().st_size if part.exists() else 0
        headers = {"Accept-Encoding": "identity"}  # so that positions in the file and in the response agree
        if 0 < received < manifest.bytes:
            headers |= {"Range": f"bytes={received}-", "If-Range": etag}
        with self._response("GET", path, headers, **options) as response:
            if response.headers.get("etag") != etag:
                raise ApiError(f"{self.url}: the file has changed since its manifest was read. Download it again")
            with part.open("ab" if response.status_code == httpx.codes.PARTIAL_CONTENT else "wb") as file:
                for piece in response.iter_raw():
                    file.write(piece)

    @contextmanager
    def _response(self, method: str, path: str, headers: dict[str, str], **options: Any) -> Iterator[httpx.Response]:
        """Send a request, and yield its response before the body is read."""
        if self.key is not None:
            headers = {**headers, "Authorization": f"Bearer {self.key}"}
        options = {"headers": headers, "timeout": self.timeout_s, "trust_env": False, **options}
        try:
            with httpx.stream(method, f"{self.url.rstrip('/')}/api/v1{path}", **options) as response:
                if not response.is_success:
                    response.read()
                    raise ApiError(f"{self.url}: {_reason(response)}")
                yield response
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise ApiError(f"{self.url}: no answer from the API (`coevo up` starts it): {error}") from error


def _parts_of(to: Path) -> Iterator[Path]:
    name = re.compile(rf"{re.escape(to.name)}\.[0-9a-f]{{64}}\.part")
    return (path for path in to.parent.iterdir() if name.fullmatch(path.name))


def _reason(response: httpx.Response) -> str:
    if response.headers.get("content-type") != "application/problem+json":
        return f"HTTP {response.status_code}, from a server that is not coevo's API"
    return f"HTTP {response.status_code}: {response.json()['detail']}"
