"""Makes Ray Serve's HTTP proxy require the key of every request before an application sees it, and refuse large
headers.

Without the key, a web page in a browser on the machine, or another user of the machine, could send requests to the
models and delay the others. Ray calls `middlewares` in the proxy's process, because the environment variable
RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH names it.
"""

from __future__ import annotations

import hmac

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from services.api.access.connections import limit_every_uvicorn
from services.inference import access

MIDDLEWARES = f"{__name__}:middlewares"
_OPEN = "/-/"  # Serve's own pages, which need no key: its health, and the names of the applications


class KeyOnly:
    """Middleware that answers 401 to a request without the key."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._expected = access.headers().get("Authorization")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        needs_no_key = scope["type"] == "lifespan" or self._expected is None or scope["path"].startswith(_OPEN)
        if needs_no_key or hmac.compare_digest(
            Headers(scope=scope).get("authorization", "").encode(), (self._expected or "").encode()
        ):
            return await self.app(scope, receive, send)
        if scope["type"] == "websocket":  # no application has one; closed before it is accepted, it is refused with 403
            return await send({"type": "websocket.close"})
        error = {"message": f"Authorization: expected `Bearer KEY`; see {access.KEY} in docs/security.md"}
        await JSONResponse({"error": error}, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)


def middlewares() -> list[Middleware]:
    """The middlewares that Ray Serve's proxy puts in front of all applications. Ray calls this before it starts the
    proxy's server, so the server's headers can be limited here."""
    limit_every_uvicorn()
    return [Middleware(KeyOnly)]
