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
    flow_runs,
    labelling,
    metrics,
    problems,
    questions,
    runs,
    series,
    traces,
    triggers,
)
from services.api.body_limit import BodyLimit
from services.api.dependencies import in_own_threads
from services.api.headers import SafeHeaders
from services.api.keys import needs
from services.api.origins import REFUSALS, OwnMachineOnly
from services.api.problems import documented
from services.api.schemas import Health
from services.api.triggers import RefuseUnready
from services.dashboard import pages as dashboard
from services.prefect_server import PrefectServer
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
    prefect: PrefectServer | None = None,
    presets: Path | None = None,
    texts: Path | None = None,
    refuse_unready: RefuseUnready = lambda _config, _new: None,
) -> FastAPI:
    """The API on a store, with a folder for the files that it makes of it.

    With `ask_for_keys` /metrics and every route under /api want a key (services/api/keys.py), but for the description,
    /api/openapi.json, which is public; without, only requests to this very machine are answered (origins.py). Runs are
    started from the files in `presets` by `prefect`; None: they cannot be. `refuse_unready` raises what keeps a run
    from starting, so far as this process can know it. What rollouts wrote is below `texts`, where it is kept at all.
    """
    app = FastAPI(
        title="coevo",
        version="1",
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.state.store, app.state.exports, app.state.export_locks = store, folder, exports.Locks()
    app.state.prefect, app.state.presets, app.state.texts = prefect, presets, texts
    app.state.refuse_unready = refuse_unready
    app.state.metrics = metrics.registry_of(store)
    problems.install(app)
    asked = [Depends(needs("read"))] if ask_for_keys else []
    refusals = documented(401, 403, 422) if ask_for_keys else documented(422)
    for part in (runs, flow_runs, questions, traces, figures, series, checkpoints, exports, alerts, audits):
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
    app.add_middleware(BodyLimit)
    if not ask_for_keys:
        app.add_middleware(OwnMachineOnly)
    app.add_middleware(SafeHeaders)

    app.include_router(metrics.router, dependencies=asked, responses=refusals)

    dashboard.install(app)
    examples.install(app)

    @app.get("/healthz", tags=["health"])
    @in_own_threads("health", 1)
    def healthz() -> Health:
        """Whether the API and its database answer. It waits for no other route's thread."""
        with store.read() as session:
            session.connection()
        return Health()

    return app
