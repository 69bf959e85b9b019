"""A client of coevo's REST API, for programs and for coevo's command line. It needs httpx and nothing else of coevo.

    from coevo_client import Client  # in an installation of coevo: from services.client import Client

    api = Client("http://127.0.0.1:8080", key)
    accuracy = api.get("/runs/demo/series", name="label_accuracy")
    kept = list(api.items("/runs/demo/iterations/1/questions", verdict="kept"))
    api.export("/runs/demo/export", Path("votes.parquet"), what="votes", format="parquet")

Rows are dictionaries, with the fields that the API's description has. This folder is also the source of the package
`coevo-client`, so it imports no other module of coevo.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

__all__ = ["LARGEST_PAGE", "ApiError", "Client"]
LARGEST_PAGE = 200  # entries, of a list
_PREFIX = "/api/v1"


class ApiError(Exception):
    """The API refused a request, whose reason is in the message, or it did not answer."""


@dataclass(frozen=True, slots=True)
class Client:
    """The API at `url`. `key` is sent if there is one; `timeout_s` is how long a request waits for the next bytes.

    `path` is a route without `/api/v1`, such as `/runs`, and parameters that are None are left out. Every method raises
    `error`, whose message names the address that was asked.
    """

    url: str
    key: str | None = field(default=None, repr=False)
    timeout_s: float = 30.0
    error: type[Exception] = ApiError

    def get(self, path: str, **parameters: Any) -> Any:
        """The answer of a route, as JSON."""
        return self.send("GET", path, params=_given(parameters))

    def items(self, path: str, **parameters: Any) -> Iterator[Any]:
        """The entries of a list that comes in pages, from all its pages one after another."""
        parameters = _given(parameters)
        while True:
            page = self.send("GET", path, params=parameters)
            if not isinstance(page, dict) or not {"items", "next"} <= page.keys():
                shape = f"an object with {', '.join([*page][:10])}" if isinstance(page, dict) else "a whole list"
                raise self.error(f"{self._address(path)}: expected a list in pages, got {shape}; use get")
            yield from page["items"]
            if page["next"] is None:
                return
            # Only a list in pages has the parameter `limit`.
            parameters = {"limit": LARGEST_PAGE, **parameters, "after": page["next"]}

    def send(self, method: str, path: str, **options: Any) -> Any:
        """The answer to a request, as JSON; `options` are those of `httpx.request`."""
        with self._response(method, path, {}, **options) as response:
            if response.headers.get("content-disposition", "").startswith("attachment"):
                raise self.error(f"{self._address(path)}: this route answers with a file: use export()")
            response.read()
            try:
                return response.json()
            except ValueError as error:
                address = self._address(path)
                raise self.error(f"{address}: expected JSON, from a server that is not coevo's API") from error

    def export(self, path: str, to: Path, **parameters: Any) -> dict[str, Any]:
        """Download the export of a route to `to`, and return its manifest.

        The file appears once it is complete and its sha256 is right. If the connection breaks, what has arrived is kept
        beside it, and another call continues the download. The name of that file contains the sha256, so it is never
        continued with another export.
        """
        manifest: dict[str, Any] = self.get(f"{path}/manifest", **parameters)
        sha256, size = manifest["sha256"], manifest["bytes"]
        part = to.with_name(f"{to.name}.{sha256}.part")
        name_of_part = re.compile(rf"{re.escape(to.name)}\.[0-9a-f]{{64}}\.part")
        for other in [file for file in to.parent.iterdir() if name_of_part.fullmatch(file.name) and file != part]:
            other.unlink(missing_ok=True)
        received = part.stat().st_size if part.exists() else None
        if received != size:
            etag, headers = f'"{sha256}"', {"Accept-Encoding": "identity"}  # so that positions are those of the file
            if received and received < size:
                headers |= {"Range": f"bytes={received}-", "If-Range": etag}
            with self._response("GET", path, headers, params=_given(parameters)) as response:
                if response.headers.get("etag") != etag:
                    raise self.error(f"{self.url}: the file has changed since its manifest was read. Download it again")
                with part.open("ab" if response.status_code == httpx.codes.PARTIAL_CONTENT else "wb") as file:
                    for piece in response.iter_raw():
                        file.write(piece)
        with part.open("rb") as whole:
            digest = hashlib.file_digest(whole, "sha256").hexdigest()
            os.fsync(whole.fileno())
        if digest != sha256:
            part.unlink()
            raise self.error(f"{to}: expected the sha256 {sha256}, got {digest}. Download it again")
        os.replace(part, to)
        return manifest

    @contextmanager
    def _response(self, method: str, path: str, headers: dict[str, str], **options: Any) -> Iterator[httpx.Response]:
        """Send a request, and yield its response before the body is read."""
        if self.key is not None:
            headers = {**headers, "Authorization": f"Bearer {self.key}"}
        options = {"headers": headers, "timeout": self.timeout_s, "trust_env": False, **options}
        try:
            with httpx.stream(method, self._address(path), **options) as response:
                if not response.is_success:
                    response.read()
                    is_ours = response.headers.get("content-type") == "application/problem+json"
                    reason = f": {response.json()['detail']}" if is_ours else ", from a server that is not coevo's API"
                    raise self.error(f"{self._address(path)}: HTTP {response.status_code}{reason}")
                yield response
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise self.error(f"{self.url}: no answer from the API (`coevo up` starts it): {error}") from error

    def _address(self, path: str) -> str:
        if not path.startswith("/") or path.startswith(_PREFIX):
            route = path.removeprefix(_PREFIX).lstrip("/")
            raise self.error(f"path: expected a route without {_PREFIX}, such as /{route}, got {path!r}")
        if "?" in path or "#" in path:
            raise self.error(f"path: expected no ? or #, got {path!r}; give parameters as keywords")
        return f"{self.url.rstrip('/')}{_PREFIX}{path}"


def _given(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}
