"""The API of a store: asked in the process of the test, or served on a free port by one of its threads."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from fastapi.testclient import TestClient
from starlette.types import ASGIApp

from services.api.access.connections import UVICORN
from services.api.app import PREFIX, create_app
from services.api.installation import Installation
from storage.session import Store


def api_of(store: Store, folder: Path, *, key: str | None = None, **installed: Any) -> TestClient:
    """Asks the API of a store, with what is `installed` beside it; with a key, the API asks for keys."""
    app = create_app(store, folder, ask_for_keys=key is not None, installation=Installation(**installed))
    return TestClient(app, "http://localhost", headers={} if key is None else {"Authorization": f"Bearer {key}"})


def get(api: TestClient, path: str, status: int = 200, **parameters: Any) -> Any:
    """The JSON that a route under /api/v1 answers with this status."""
    response = api.get(PREFIX + path, params=parameters or None)  # {} would drop what is in the path
    assert response.status_code == status, (path, response.text)  # pytest does not rewrite this file
    return response.json()


def post(api: TestClient, path: str, status: int = 200, **body: Any) -> Any:
    """The JSON that a route under /api/v1 answers to this body with this status."""
    response = api.post(PREFIX + path, json=body)
    assert response.status_code == status, (path, response.text)
    return response.json()


def refused(api: TestClient, path: str, status: int, *words: str, **parameters: Any) -> None:
    """Check that a route under /api/v1 answers with this status and a problem whose sentence has these words."""
    detail = get(api, path, status, **parameters)["detail"]
    assert [word for word in words if word not in detail] == [], (path, detail)


@contextmanager
def serving(store: Store, folder: Path, **installed: Any) -> Iterator[str]:
    """Serve the API and the dashboard of a store for the block, without keys; yields their address."""
    with served(create_app(store, folder, ask_for_keys=False, installation=Installation(**installed))) as url:
        yield url


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """Serve `app` for the block; yields its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", **UVICORN))
    listening = server.config.bind_socket()
    listening.listen()  # listen at once: a client that connects before the server runs then waits and is not refused
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def address_of(url: str) -> tuple[str, int]:
    return "127.0.0.1", urlsplit(url).port or 0


def read_until_closed(connection: socket.socket, within_s: float = 30.0) -> bytes:
    """Everything that the server sends until it closes the connection; fails if it sends nothing for so long."""
    connection.settimeout(within_s)
    received = b""
    try:
        while part := connection.recv(65_536):
            received += part
    except ConnectionResetError:
        pass
    return received
