"""How the API's processes hold their connections: none for ever, none with large headers, and none alone."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

_EACH = 20  # answers
# How long, in seconds, a client may take to send a request's headers, and then its body, which is small (bodies.py).
LIMITS_S: dict[Any, float] = {h11.IDLE: 10.0, h11.SEND_BODY: 60.0}


class TimelyH11(H11Protocol):
    """A connection that is closed when the rest of a request does not come, for which uvicorn waits for ever.

    Otherwise somebody who opens connections and says nothing, or little, takes all that the process may have. uvicorn
    itself closes one that rests after an answer. h11 refuses headers of more than 64 KiB; httptools takes any.
    """

    _awaited: Any = None  # the part of a request that the client owes, by the state that h11 has it in
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Begin to count when the client owes another part of its request, and end when it owes none."""
        if (state := self.conn.their_state) is self._awaited:
            return
        self._stop()
        self._awaited = state
        if state in LIMITS_S:
            self._timer = self.loop.call_later(LIMITS_S[state], self.transport.abort)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


# What uvicorn is to serve the API with. There are no WebSockets in it.
UVICORN: dict[str, Any] = {"http": f"{__name__}:{TimelyH11.__name__}", "ws": "none"}


class Spreading:
    """Middleware: one answer in twenty ends its connection, and the client opens another for its next request.

    Whoever is awake takes a new connection, so of fifty that come at once one process may get forty, and would keep
    them. Those that come one by one are taken by the process that has less to do.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._answers = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def last(message: Message) -> None:
            if message["type"] == "http.response.start" and next(self._answers) % _EACH == 0:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        await self.app(scope, receive, last)
