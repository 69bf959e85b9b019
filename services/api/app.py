"""The REST API over the store: `create_app`, which `coevo api` serves."""

from __future__ import annotations

from pathlib import Path

from fastapi import Depends, FastAPI

from services.api import (
    administration,
    alerts,
    audits,
    checkpoints,
    examples,
    exports,
    figures,
    labelling,
    metrics,
    problems,
    questions,
    runs,
    series,
    traces,
    triggers,
)
from services.api.bodies import SmallBodiesOnly
from services.api.keys import needs
from services.api.origins import REFUSALS, OwnHostOnly
from services.api.problems import documented
from services.api.schemas import Health
from services.dashboard import pages as dashboard
from storage.session import Store

PREFIX = "/api/v1"
_DESCRIPTION = """Runs of the co-evolution loop, their questions with every vote, labels, checkpoints and figures.

Shares lie in [0, 1] and come with their 95% interval and the n that they rest on. Errors are
`application/problem+json`."""


def create_app(
    store: Store,
    folder: Path,
    *,
    ask_for_keys: bool,
    prefect_url: str | None = None,
    prefect_ui_url: str | None = None,
    presets: Path | None = None,
    texts: Path | None = None,
) -> FastAPI:
    """The API on a store, with a folder for the files that it makes of it.

    With `ask_for_keys` /metrics and every route under /api want a key (services/api/keys.py), but for the description,
    /api/openapi.json, which is public; without, only requests to this very machine are answered (origins.py). Runs are
    started from the files in `presets` by Prefect, whose UI is at `prefect_url`, and at `prefect_ui_url` for a browser
    where that is another; None: they cannot be. What rollouts wrote is below `texts`, where it is kept at all.
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
    app.state.prefect_url, app.state.prefect_ui_url = prefect_url, prefect_ui_url
    app.state.presets, app.state.texts = presets, texts
    app.state.metrics = metrics.registry_of(store)
    problems.install(app)
    asked = [Depends(needs("read"))] if ask_for_keys else []
    refusals = documented(401, 403, 422) if ask_for_keys else documented(422)
    for part in (runs, questions, traces, figures, series, checkpoints, exports, alerts, audits):
        app.include_router(part.router, prefix=PREFIX, dependencies=asked, responses=refusals)
    may_run = [Depends(needs("run"))] if ask_for_keys else []
    for router in (triggers.router, alerts.acknowledging):
        app.include_router(router, prefix=PREFIX, dependencies=may_run, responses={**refusals, **REFUSALS})
    may_label = [Depends(needs("label"))] if ask_for_keys else []
    for router in (labelling.router, audits.drawing):
        app.include_router(router, prefix=PREFIX, dependencies=may_label, responses={**refusals, **REFUSALS})
    if ask_for_keys:
        may_administer, answers = [Depends(needs("admin"))], {**refusals, **REFUSALS}
        app.include_router(administration.router, prefix=PREFIX, dependencies=may_administer, responses=answers)
    app.add_middleware(SmallBodiesOnly)
    if not ask_for_keys:
        app.add_middleware(OwnHostOnly)

    app.include_router(metrics.router, dependencies=asked, responses=refusals)

    dashboard.install(app)
    examples.install(app)

    @app.get("/healthz", tags=["health"])
    def healthz() -> Health:
        """Whether the API and its database answer."""
        with store.read() as session:
            session.connection()
        return Health()

    return app
