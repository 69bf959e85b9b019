"""How the client asks: one request to the REST API, and a file of it that may come in pieces."""

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
from services.api.schemas import Manifest


class ApiError(CoevoError):
    """What the API refused, in its words, or that it did not answer."""


@dataclass(frozen=True, slots=True)
class Transport:
    """Where the API is, the key to it, and how long a request waits for the next bytes. All raise `ApiError`."""

    url: str
    key: str | None = field(repr=False)
    timeout_s: float

    def json(self, method: str, path: str, **sent: Any) -> Any:
        with self._answered(method, path, {}, **sent) as response:
            response.read()
            return response.json()

    def file(self, path: str, manifest: Manifest, to: Path, **sent: Any) -> None:
        """Write the file that a manifest is of, or the rest of it where an earlier answer ended in the middle.

        Its part is beside it, under a name with the sha256: a part of another file is none of this.
        """
        part = to.with_name(f"{to.name}.{manifest.sha256}.part")
        for other in set(_parts(to)) - {part}:
            other.unlink(missing_ok=True)
        if not part.exists() or part.stat().st_size != manifest.bytes:
            self._fetch(path, manifest, part, **sent)
        with part.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != manifest.sha256:
            part.unlink()
            raise ApiError(f"{to}: expected the sha256 {manifest.sha256}, got {digest}. Ask again")
        put(part, to)

    def _fetch(self, path: str, manifest: Manifest, part: Path, **sent: Any) -> None:
        etag, has = f'"{manifest.sha256}"', part.stat().st_size if part.exists() else 0
        headers = {"Accept-Encoding": "identity"}  # a place in the file is one in the answer
        if 0 < has < manifest.bytes:
            headers |= {"Range": f"bytes={has}-", "If-Range": etag}
        with self._answered("GET", path, headers, **sent) as response:
            if response.headers.get("etag") != etag:
                raise ApiError(f"{self.url}: the file was made anew since its manifest was read. Ask again")
            with part.open("ab" if response.status_code == httpx.codes.PARTIAL_CONTENT else "wb") as file:
                for piece in response.iter_raw():
                    file.write(piece)

    @contextmanager
    def _answered(self, method: str, path: str, headers: dict[str, str], **sent: Any) -> Iterator[httpx.Response]:
        """The answer, not read yet."""
        if self.key is not None:
            headers = {**headers, "Authorization": f"Bearer {self.key}"}
        sent = {"headers": headers, "timeout": self.timeout_s, "trust_env": False, **sent}
        try:
            with httpx.stream(method, f"{self.url.rstrip('/')}/api/v1{path}", **sent) as response:
                if not response.is_success:
                    response.read()
                    raise ApiError(f"{self.url}: {_reason(response)}")
                yield response
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise ApiError(f"{self.url}: no answer from the API (coevo api serves it): {error}") from error


def _parts(to: Path) -> Iterator[Path]:
    name = re.compile(rf"{re.escape(to.name)}\.[0-9a-f]{{64}}\.part")
    return (path for path in to.parent.iterdir() if name.fullmatch(path.name))


def _reason(response: httpx.Response) -> str:
    if response.headers.get("content-type") != "application/problem+json":
        return f"HTTP {response.status_code}, which is not an answer of coevo's API"
    return f"HTTP {response.status_code}: {response.json()['detail']}"
