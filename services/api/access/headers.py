"""Headers of every answer, which tell browsers not to guess its media type and not to store it."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A route may set other values. The dashboard's files contain nothing of a run, so browsers may store them and must
# ask whether they have changed.
SAFE = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class DefaultHeaders:
    """Middleware that adds those of `headers` that an answer does not have already."""

    def __init__(self, app: ASGIApp, headers: Mapping[str, str]) -> None:
        self.app, self.headers = app, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, with_headers)
