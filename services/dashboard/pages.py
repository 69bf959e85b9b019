"""The dashboard: files that the browser runs over the REST API, and the headers that they are served with.

Nothing is rendered here and nothing comes from elsewhere: one page of HTML whose scripts read the address, ask the API,
and draw. The libraries in vendor/ are other people's, as they published them (vendor/README.md).
"""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope
from typing_extensions import override

HERE = Path(__file__).parent
# What Observable Plot puts into each of its pictures: one style sheet of its own, known by its hash.
PLOT_STYLE = "sha256-jSYQUrW7J0b3jPqhZP9C2Xh1PyJKHKXd4s0fpGGKrww="
# Redoc's style sheets: one of fixed text, and one that is empty when it is added and to which Redoc then adds rules.
_REDOC_STYLES = (
    "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
    "sha256-QMIg+bpjm3JdElJ388KYke01izlUW0UoNOeKjpMxdgc=",
)


def _policy(*styles: str) -> str:
    """The content security policy of a page to which scripts add style sheets that have these hashes."""
    hashes = " ".join(f"'{style}'" for style in styles)
    return "; ".join(
        [
            "default-src 'none'",
            "script-src 'self'",
            f"style-src 'self' {hashes}",
            "font-src 'self'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


CONTENT_SECURITY_POLICY = _policy(PLOT_STYLE)
REFERENCE_POLICY = _policy(*_REDOC_STYLES)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # asked for again, and answered with 304 where it is the same
}


class _Files(StaticFiles):
    """The files of a folder, served with `_HEADERS`."""

    @override
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response


_STATIC = _Files(directory=HERE / "static")
router = APIRouter(include_in_schema=False)


@router.get("/")
@router.get("/compare")
@router.get("/alerts")
@router.get("/evaluations")
@router.get("/evaluations/{rest:path}")
@router.get("/label")
@router.get("/runs/{rest:path}")
async def page(request: Request) -> Response:
    """The one page there is."""
    return await _file(request, "index.html", CONTENT_SECURITY_POLICY)


@router.get("/api/docs")
async def reference(request: Request) -> Response:
    """The API reference, which is drawn from the description at /api/openapi.json."""
    return await _file(request, "reference.html", REFERENCE_POLICY)


async def _file(request: Request, name: str, policy: str) -> Response:
    response = await _STATIC.get_response(name, request.scope)
    response.headers["Content-Security-Policy"] = policy
    return response


def install(app: FastAPI) -> None:
    """Have the application serve the dashboard beside its API."""
    app.include_router(router)
    for name in ("static", "vendor"):
        app.mount(f"/{name}", _Files(directory=HERE / name), name=name)
