"""Serve an API application on a free port of this machine, in a thread of the test's process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp

from services.api.access.connections import UVICORN


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
