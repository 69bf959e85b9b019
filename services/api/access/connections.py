"""Connections to the API: slow ones are closed, large headers are refused, and the processes share them evenly."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

_ANSWERS_PER_CLOSE = 20
# How many seconds a client may take to send a request's headers, and then its body, which is small (body_limit.py).
LIMITS_S: dict[Any, float] = {h11.IDLE: 10.0, h11.SEND_BODY: 60.0}


class TimelyH11(H11Protocol):
    """A connection that is closed when the rest of a request does not arrive in time. uvicorn would wait for ever.

    Otherwise a client could open connections, send little or nothing, and take all connections that the process may
    have. uvicorn itself closes a connection that is idle after an answer. h11 refuses headers of more than 64 KiB;
    httptools would accept any.
    """

    _awaited_state: Any = None  # h11's state: which part of a request the client has to send next
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
        """Start the timer when the client has to send another part of a request, and stop it when it has sent all."""
        if (state := self.conn.their_state) is self._awaited_state:
            return
        self._stop()
        self._awaited_state = state
        if state in LIMITS_S:
            self._timer = self.loop.call_later(LIMITS_S[state], self.transport.abort)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


# The options of uvicorn for the API, which has no WebSockets.
UVICORN: dict[str, Any] = {"http": f"{__name__}:{TimelyH11.__name__}", "ws": "none"}


class Spreading:
    """Middleware that closes the connection after one answer in twenty, so that the client opens another one.

    A new connection goes to any process that is awake. So of fifty connections that come at once, one process may get
    forty, and would keep them. Connections that come one by one go to the process that has less to do.
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
