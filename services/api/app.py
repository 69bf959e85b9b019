"""The REST API over the store: `create_app`, which `coevo api` serves."""

from __future__ import annotations

from pathlib import Path

from fastapi import Depends, FastAPI

from services.api import checkpoints, exports, figures, problems, questions, runs
from services.api.keys import needs
from services.api.problems import documented
from services.api.schemas import Health
from storage.session import Store

PREFIX = "/api/v1"
_DESCRIPTION = """Runs of the co-evolution loop, their questions with every vote, labels, checkpoints and figures.

Shares lie in [0, 1] and come with their 95% interval and the n that they rest on. Errors are
`application/problem+json`."""


def create_app(store: Store, folder: Path, *, ask_for_keys: bool) -> FastAPI:
    """The API on a store, with a folder for the files that it makes of it.

    With `ask_for_keys` every route under /api wants a key (services/api/keys.py).
    """
    app = FastAPI(
        title="coevo",
        version="1",
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.state.store, app.state.exports = store, folder
    problems.install(app)
    asked = [Depends(needs("read"))] if ask_for_keys else []
    refusals = documented(401, 403, 422) if ask_for_keys else documented(422)
    for part in (runs, questions, figures, checkpoints, exports):
        app.include_router(part.router, prefix=PREFIX, dependencies=asked, responses=refusals)

    @app.get("/healthz", tags=["health"])
    def healthz() -> Health:
        """Whether the API and its database answer."""
        with store.read() as session:
            session.connection()
        return Health()

    return app
