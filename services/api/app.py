"""The REST API over the store: `create_app`, which `coevo store serve` serves."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from threading import Event

from fastapi import APIRouter, Depends, FastAPI, HTTPException
from starlette.routing import BaseRoute

from services.api import description, metrics, problems
from services.api.access.body_limit import BodyLimit
from services.api.access.head import AnswersHead
from services.api.access.headers import SAFE, DefaultHeaders
from services.api.access.keys import needs
from services.api.access.origins import REFUSALS, OwnMachineOnly, same_site
from services.api.dependencies import in_own_threads, limited_threads
from services.api.export_writing import Writing
from services.api.installation import Installation
from services.api.problems import documented
from services.api.query_parameters import refuse_unknown_parameters
from services.api.routes import (
    administration,
    alerts,
    audits,
    checkpoints,
    comparisons,
    configuration,
    evaluating,
    evaluations,
    exports,
    figures,
    labelling,
    questions,
    run_notes,
    runs,
    series,
    traces,
    training_rollouts,
    triggers,
)
from services.api.schemas import Health
from services.dashboard import pages as dashboard
from services.prefect.client import Prefect
from storage.errors import StoreError
from storage.rows import Scope
from storage.session import Store

PREFIX = "/api/v1"
_KNOWN_PARAMETERS = Depends(refuse_unknown_parameters)
# The routes by the scope that a key needs for them. Those that do not only read are refused to other sites' pages.
_READING = (
    runs.router,
    questions.router,
    traces.router,
    training_rollouts.router,
    figures.router,
    series.router,
    checkpoints.router,
    comparisons.router,
    configuration.router,
    evaluations.router,
    exports.router,
    alerts.router,
    audits.router,
    run_notes.router,
)
_WRITING: dict[Scope, tuple[APIRouter, ...]] = {
    "run": (triggers.router, evaluating.router, alerts.acknowledging, run_notes.writing),
    "label": (labelling.router, audits.drawing),
    "admin": (administration.router,),  # only if the API asks for keys
}


def create_app(store: Store, folder: Path, *, ask_for_keys: bool, installation: Installation | None = None) -> FastAPI:
    """Make the API of a store. It writes its exports into `folder`.

    With `ask_for_keys`, /metrics and every route under /api need a key (access/keys.py), except the description at
    /api/openapi.json, which is public. Without it, only requests to this machine are answered (access/origins.py).
    """
    app = FastAPI(
        title="coevo",
        version="1",
        description=description.INTRODUCTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=limited_threads,
        redirect_slashes=False,  # the address of such a redirect would begin with whatever `Host` the client sent
    )
    app.state.store, app.state.exports = store, folder
    app.state.writings = dict[Path, Writing]()  # the exports that are being written
    app.state.ending = Event()  # exports that are being written end with it
    installation = installation or Installation()
    app.state.installation, app.state.prefect = installation, Prefect(installation.prefect)
    problems.install(app)
    app.router.routes += _routes(ask_for_keys)
    app.add_middleware(BodyLimit)
    app.add_middleware(AnswersHead)
    if not ask_for_keys:
        app.add_middleware(OwnMachineOnly)
    app.add_middleware(DefaultHeaders, headers=SAFE)

    dashboard.install(app)
    description.install(app)

    @app.get("/healthz", tags=["health"], dependencies=[_KNOWN_PARAMETERS], responses=documented(422, 503))
    @in_own_threads("health", 1)
    def healthz() -> Health:
        """Whether the API and its database answer, within a few seconds. It has a thread of its own, and waits for no
        other route."""
        try:
            store.refuse_lost()
        except StoreError as error:
            problems.log.error("%s", error)
            raise HTTPException(503, "the database did not answer; the reason is in the API's log") from error
        return Health()

    return app


@cache  # FastAPI needs a third of a second for them
def _routes(ask_for_keys: bool) -> list[BaseRoute]:
    """The routes of every store."""
    routes = APIRouter()
    refusals = documented(401, 403, 422) if ask_for_keys else documented(422)
    of_readers = [Depends(needs("read")), _KNOWN_PARAMETERS] if ask_for_keys else [_KNOWN_PARAMETERS]
    for router in _READING:
        routes.include_router(router, prefix=PREFIX, dependencies=of_readers, responses=refusals)
    for scope, routers in _WRITING.items():
        if scope == "admin" and not ask_for_keys:
            continue
        key = [Depends(needs(scope))] if ask_for_keys else []
        for router in routers:
            routes.include_router(
                router,
                prefix=PREFIX,
                dependencies=[*key, _KNOWN_PARAMETERS, Depends(same_site)],
                responses={**refusals, **REFUSALS},
            )
    routes.include_router(metrics.router, dependencies=of_readers, responses=refusals)
    return routes.routes
