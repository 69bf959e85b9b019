"""Refuses the body of a request if it is not in UTF-8, is too large for the memory, or comes too slowly. A middleware
does so, because FastAPI reads the body before it asks for a key."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST = 1 << 16  # bytes; several times the largest body that a route needs
LONGEST_S = 60.0  # how long a client may take to send a body
_CLOSE = {"Connection": "close"}  # the rest of the body is not waited for


class BodyLimit:
    """Middleware that stops reading a body after 64 KiB, and answers 413, or after a minute, and answers 408.

    A body with a NUL byte gets 400: it is no JSON in UTF-8. Python would read it as UTF-16 or UTF-32, and a filter in
    front of the API as something else.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        read, whole, late = 0, False, asyncio.get_running_loop().time() + LONGEST_S

        async def limited_receive() -> Message:
            nonlocal read, whole
            try:
                # After the whole body, this waits until the client leaves, which may be long after.
                async with asyncio.timeout_at(None if whole else late):
                    message = await receive()
            except TimeoutError as error:
                detail = f"the request's body: expected within {LONGEST_S:g} s, got {read:,} bytes of it"
                raise HTTPException(408, detail, _CLOSE) from error
            body, whole = message.get("body", b""), not message.get("more_body", False)
            read += len(body)
            if b"\0" in body:
                raise HTTPException(400, "the request's body: expected JSON in UTF-8, got a NUL byte")
            if read > LARGEST:
                raise HTTPException(413, f"the request's body: expected at most {LARGEST:,} bytes, got more", _CLOSE)
            return message

        await self.app(scope, limited_receive, send)
