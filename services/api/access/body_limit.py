"""Refuses large bodies of requests before they are in memory. This needs a middleware, because FastAPI reads the body
before it asks for a key."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST = 1 << 16  # bytes; several times the largest body that a route needs


class BodyLimit:
    """Middleware that stops reading a body after 64 KiB, and answers 413."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        read = 0

        async def limited_receive() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > LARGEST:
                raise HTTPException(413, f"the request's body: expected at most {LARGEST:,} bytes, got more")
            return message

        await self.app(scope, limited_receive, send)
