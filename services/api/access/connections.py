"""Connections to the API, to Prefect and to Ray Serve: slow ones are closed, and large headers are refused.

Connections to the API are also shared evenly by its processes.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override
from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.protocols.http.h11_impl import H11Protocol

_ANSWERS_PER_CLOSE = 20
# How many seconds a client may take to send a request's headers, and then its body, which is small (body_limit.py).
LIMITS_S: dict[Any, float] = {h11.IDLE: 10.0, h11.SEND_BODY: 60.0}
STALLED_S = 60.0  # how long a client may take nothing of an answer


class TimelyH11(H11Protocol):
    """A connection that is closed when the rest of a request does not arrive in time, or when the client does not read
    the answer. uvicorn would wait for ever.

    Otherwise a client could open connections, send or read little or nothing, and take all connections that the process
    may have. uvicorn itself closes a connection that is idle after an answer. h11 refuses headers of more than 64 KiB;
    httptools would accept any.
    """

    _awaited_state: Any = None  # h11's state: which part of a request the client has to send next
    _timer: asyncio.TimerHandle | None = None
    _reading_timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # `pause_writing` is then called for any bytes that the kernel does not take. By default it is called for more
        # than 64 KiB, and a connection that is closed with fewer stays open until they are read.
        transport.set_write_buffer_limits(high=0)
        self._watch()

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading(None)

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._reading_timer)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._timer)
        _cancel(self._reading_timer)
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start the timer when the client has to send another part of a request, and stop it when it has sent all."""
        if (state := self.conn.their_state) is self._awaited_state:
            return
        _cancel(self._timer)
        self._awaited_state = state
        self._expect_sending(state)

    def _expect_sending(self, state: Any) -> None:
        if state in LIMITS_S:
            self._timer = self.loop.call_later(LIMITS_S[state], self._late, state)

    def _late(self, state: Any) -> None:
        if self.flow.read_paused:  # the client waits for the application, which has not read the first part of the body
            self._expect_sending(state)
        else:
            self.transport.abort()

    def _expect_reading(self, before: int | None) -> None:
        """Close the connection if none of the `before` bytes that waited for the client was taken since."""
        waiting = self.transport.get_write_buffer_size()
        if waiting == before:
            self.transport.abort()
        else:
            self._reading_timer = self.loop.call_later(STALLED_S, self._expect_reading, waiting)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def limit_every_uvicorn() -> None:
    """Have servers of this process that leave the choice to uvicorn use `TimelyH11`. Prefect and Ray Serve do so, and
    have no setting for it; with httptools, anybody could fill their memory with headers, without any secret."""
    HTTP_PROTOCOLS["auto"] = _TIMELY


_TIMELY = f"{__name__}:{TimelyH11.__name__}"
# The options of uvicorn for the API, which has no WebSockets.
# After `timeout_graceful_shutdown` seconds, the requests that are still being answered end with the server.
UVICORN: dict[str, Any] = {"http": _TIMELY, "ws": "none", "timeout_graceful_shutdown": 15}


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
