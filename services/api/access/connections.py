"""Connections to the API, to Prefect and to Ray Serve: large headers are refused, and the API's connections counted.

A client that sends headers slowly, or reads no answer, keeps one of these connections. A reverse proxy closes such ones
(docs/deploying.md); an API on a loopback address needs none. Connections to the API are also shared evenly by its
processes.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import HTTP_PROTOCOLS

_ANSWERS_PER_CLOSE = 20
# The options of uvicorn for the API, which has no WebSockets. h11 refuses headers of more than 64 KiB; httptools would
# accept any. Beyond `limit_concurrency` connections, a process answers 503: it can often open only 1,024 files.
# After `timeout_graceful_shutdown` seconds, the requests that are still being answered end with the server.
UVICORN: dict[str, Any] = {"http": "h11", "ws": "none", "limit_concurrency": 512, "timeout_graceful_shutdown": 15}


def limit_every_uvicorn() -> None:
    """Have servers of this process that leave the choice to uvicorn use h11. Prefect and Ray Serve do so, and have no
    setting for it; with httptools, anybody could fill their memory with headers, without any secret."""
    HTTP_PROTOCOLS["auto"] = HTTP_PROTOCOLS["h11"]


class Spreading:
    """Middleware that closes the connection after one answer in twenty. The client then opens a new connection.

    Any process that is awake may take a new connection. Of fifty connections at once, one process may take forty, and
    would keep them. Single new connections go to the process with less to do.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._answers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_and_maybe_close(message: Message) -> None:
            if message["type"] == "http.response.start" and next(self._answers) % _ANSWERS_PER_CLOSE == 0:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        await self.app(scope, receive, send_and_maybe_close)
