"""Requests that a web page makes in the browser of somebody who may reach the API: they are refused.

An API without keys (`coevo api --no-keys`) believes whatever reaches its port. Three ways lead there from a foreign
page: a form or a script that posts across sites, a name of the page's own that is made to resolve to 127.0.0.1, and any
link, picture or script with an address of the API, whose answer the page cannot read, but which makes the API work.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from services.api.problems import MEDIA_TYPE, Problem, documented

# Of a route that writes: a body that is no text or too large (bodies.py), and what `same_site` refuses.
REFUSALS = documented(400, 403, 413, 415)


def same_site(request: Request) -> None:
    """A dependency of every route that writes: the request is not another site's.

    A browser says whose page it comes from, and sends JSON across sites only to a server that allows it. So it does
    with methods other than POST, whose bodies, if any, may be of any kind.
    """
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        raise HTTPException(403, f"Origin: expected none, or a page of {host!r}, got {origin[:100]!r}")
    kind = request.headers.get("content-type", "")
    if request.method == "POST" and kind.partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, f"Content-Type: expected application/json, got {kind[:100]!r}")


class OwnMachineOnly:
    """Middleware for an API that asks for no keys: it answers only to names of the machine that it listens on, and not
    to other sites' pages. A link from one of those to a page of the dashboard works."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and (problem := _refusal(scope, Headers(scope=scope))) is not None:
            answer = JSONResponse(problem.model_dump(), problem.status, media_type=MEDIA_TYPE)
            await answer(scope, receive, send)
            return
        await self.app(scope, receive, send)


def _refusal(scope: Scope, headers: Headers) -> Problem | None:
    host, site = headers.get("host", ""), headers.get("sec-fetch-site", "none")
    if not _is_own(host):
        detail = f"Host: expected a loopback address or localhost, since no keys are asked for; got {host[:100]!r}"
        return Problem(title="Misdirected Request", status=421, detail=detail)
    # Browsers say it of every request. "none" is an address that a person typed; "same-site" another port of this host.
    if site not in ("none", "same-origin") and not _opens_a_page(scope, headers):
        detail = f"Sec-Fetch-Site: expected same-origin or none, since no keys are asked for; got {site[:100]!r}"
        return Problem(title="Forbidden", status=403, detail=detail)
    return None


def _opens_a_page(scope: Scope, headers: Headers) -> bool:
    """Whether a person followed a link to a page of the dashboard, which works only once its own script runs."""
    to_a_page = not scope["path"].startswith(("/api/", "/metrics", "/healthz"))
    return to_a_page and headers.get("sec-fetch-mode") == "navigate" and scope.get("method") in ("GET", "HEAD")


def _is_own(host: str) -> bool:
    """Loopback, which is all that an API without keys listens on; by any port, for one that is forwarded may be
    another."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
