"""Connections are spread over the API's processes, which share one port."""

from __future__ import annotations

from itertools import count

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_EACH = 20  # answers


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
