"""Headers of every answer: no browser guesses what it is, and none keeps it."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A route may say otherwise: the dashboard's files, which hold nothing of any run, are kept and asked for again.
SAFE = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class SafeHeaders:
    """Middleware that adds `SAFE`, so far as an answer has not these headers already."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAFE.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, with_headers)
