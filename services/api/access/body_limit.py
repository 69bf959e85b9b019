"""Refuses bodies of requests that are not in UTF-8, and large ones before they are in memory. This needs a middleware,
because FastAPI reads the body before it asks for a key."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST = 1 << 16  # bytes; several times the largest body that a route needs


class BodyLimit:
    """Middleware that stops reading a body after 64 KiB, and answers 413.

    A body with a NUL byte gets 400: it is no JSON in UTF-8. Python would read it as UTF-16 or UTF-32, and a filter in
    front of the API as something else.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        read = 0

        async def limited_receive() -> Message:
            nonlocal read
            message = await receive()
            body = message.get("body", b"")
            read += len(body)
            if b"\0" in body:
                raise HTTPException(400, "the request's body: expected JSON in UTF-8, got a NUL byte")
            if read > LARGEST:
                raise HTTPException(413, f"the request's body: expected at most {LARGEST:,} bytes, got more")
            return message

        await self.app(scope, limited_receive, send)
