"""Serve an API application on a free port of this machine, in a thread of the test's process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
