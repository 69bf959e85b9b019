"""Answers HEAD as RFC 9110 (9.3.2) asks for it: with the headers of GET, and without a body."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PATHSEND = "http.response.pathsend"


def is_head(request: Request) -> bool:
    """Whether the client asks for the headers only, though the route sees a GET."""
    return _PATHSEND in (request.scope.get("extensions") or {})


class AnswersHead:
    """Middleware that answers HEAD by the route for GET, of which FastAPI's have none of their own for HEAD.

    A route is told that the server sends files itself, so it does not read them. `Range` has a meaning for GET only.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        scope = {
            **scope,
            "method": "GET",
            "headers": [(name, value) for name, value in scope["headers"] if name.lower() != b"range"],
            "extensions": {**(scope.get("extensions") or {}), _PATHSEND: {}},
        }

        async def without_body(message: Message) -> None:
            if message["type"] == _PATHSEND:
                message = {"type": "http.response.body"}
            elif message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self.app(scope, receive, without_body)
