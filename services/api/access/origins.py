"""Refuses requests that a page of another site makes in the browser of a person who can reach the API.

An API without keys (`coevo store serve --no-keys`) trusts each request that reaches its port. A page of another site
can send requests in three ways: by a form or a script that posts across sites; by a host name of its own that it lets
resolve to 127.0.0.1; and by a link, picture or script with an address of the API. In the last case the page cannot read
the answer, but it makes the API work.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from services.api.problems import MEDIA_TYPE, documented, problem

# The refusals of a route that writes: a body that is not text, late or too large (body_limit.py), and `same_site`'s.
REFUSALS = documented(400, 403, 408, 413, 415)


def same_site(request: Request) -> None:
    """A dependency of every route that writes. It refuses requests from pages of other sites, except those that read.

    A browser says in `Origin` which site the page belongs to, and sends JSON across sites only to a server that allows
    it. It also sends methods other than POST across sites only to such a server, so their bodies need not be JSON.
    """
    if request.method == "GET":
        return
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    if origin is not None:
        try:
            site = urlsplit(origin).netloc.lower()
        except ValueError:
            site = ""
        if not site or site != host.lower():
            raise HTTPException(403, f"Origin: expected none, or that of {host!r}, got {origin[:100]!r}")
    kind = request.headers.get("content-type", "")
    if request.method == "POST" and kind.partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, f"Content-Type: expected application/json, got {kind[:100]!r}")


class OwnMachineOnly:
    """Middleware for an API that asks for no keys. It answers only if `Host` is a name of this machine, and it refuses
    pages of other sites. A link from another site to a page of the dashboard works."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        # Browsers send Sec-Fetch-Site with every request. "none" is an address that a person typed. "same-site" is
        # another port of this host.
        host, fetch_site = headers.get("host", ""), headers.get("sec-fetch-site", "none")
        # A person may follow a link to a page of the dashboard, which does nothing until its own script runs.
        to_a_page = not scope["path"].startswith(("/api/", "/metrics", "/healthz"))
        navigates = headers.get("sec-fetch-mode") == "navigate" and scope.get("method") in ("GET", "HEAD")
        expected = "as the API asks for no keys; got"
        if not _is_own(host):
            refusal = problem(421, f"Host: expected localhost or a loopback address, {expected} {host[:100]!r}")
        elif fetch_site not in ("none", "same-origin") and not (to_a_page and navigates):
            refusal = problem(403, f"Sec-Fetch-Site: expected same-origin or none, {expected} {fetch_site[:100]!r}")
        else:
            await self.app(scope, receive, send)
            return
        answer = JSONResponse(refusal.model_dump(), refusal.status, media_type=MEDIA_TYPE)
        await answer(scope, receive, send)


def _is_own(host: str) -> bool:
    """Whether `host` is a loopback address. An API without keys listens only on these. Any port is accepted, because a
    forwarded port may differ."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
