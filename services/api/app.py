"""The REST API over the store: `create_app`, which `coevo store serve` serves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

from fastapi import Depends, FastAPI, HTTPException, params

from services.api import description, metrics, problems
from services.api.access.body_limit import BodyLimit
from services.api.access.head import AnswersHead
from services.api.access.headers import SAFE, DefaultHeaders
from services.api.access.keys import needs
from services.api.access.origins import REFUSALS, OwnMachineOnly
from services.api.dependencies import in_own_threads, limited_threads
from services.api.export_writing import Writing
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
from services.api.routes.presets import DescribePreset, QuestionSets
from services.api.routes.runs import Planned
from services.api.routes.triggers import RefuseUnready
from services.api.schemas import Health
from services.dashboard import pages as dashboard
from services.prefect.client import Prefect
from services.prefect.server import PrefectServer
from storage.errors import StoreError
from storage.rows import Scope
from storage.session import Store

PREFIX = "/api/v1"


def create_app(
    store: Store,
    folder: Path,
    *,
    ask_for_keys: bool,
    prefect: PrefectServer | None = None,
    ray_answers: Callable[[], bool] | None = None,
    presets: Path | None = None,
    papers: Path | None = None,
    question_sets: QuestionSets | None = None,
    texts: Path | None = None,
    run_logs: Path | None = None,
    planned: Planned = lambda _config: (),
    refuse_unready: RefuseUnready = lambda _config, _new: None,
    describe_preset: DescribePreset | None = None,
) -> FastAPI:
    """Make the API of a store. It writes its exports into `folder`.

    With `ask_for_keys`, /metrics and every route under /api need a key (access/keys.py), except the description at
    /api/openapi.json, which is public. Without it, only requests to this machine are answered (access/origins.py).

    Prefect (`prefect`) starts runs from the preset files in `presets`; if either is None, no run can be started.
    `ray_answers` tells whether Ray does, for /metrics; None: it is not known.
    `papers` is the file deploy/runs/papers.tsv, with what the papers state; None: the papers' values are not shown.
    `question_sets` are the benchmarks and suites that a caller may name.
    `refuse_unready` raises an error when a run cannot start, as far as this process can know. `texts` is the folder
    with the texts of rollouts, and `run_logs` that with the logs of runs; None: they are not available.
    `planned` lists the stages of a run with their iterations, in order; without it, no remaining time is known.
    `describe_preset` says what a preset needs and costs.
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
    app.state.prefect, app.state.presets, app.state.texts = Prefect(prefect), presets, texts
    app.state.papers, app.state.run_logs, app.state.planned = papers, run_logs, planned
    app.state.refuse_unready, app.state.question_sets = refuse_unready, question_sets or QuestionSets()
    app.state.describe_preset = describe_preset
    app.state.metrics = metrics.registry_of(store, app.state.prefect, folder, ray_answers)
    problems.install(app)
    known_parameters = Depends(refuse_unknown_parameters)

    def dependencies(scope: Scope) -> list[params.Depends]:
        return [Depends(needs(scope)), known_parameters] if ask_for_keys else [known_parameters]

    refusals = documented(401, 403, 422) if ask_for_keys else documented(422)
    for module in (
        runs,
        questions,
        traces,
        training_rollouts,
        figures,
        series,
        checkpoints,
        comparisons,
        configuration,
        evaluations,
        exports,
        alerts,
        audits,
        run_notes,
    ):
        app.include_router(module.router, prefix=PREFIX, dependencies=dependencies("read"), responses=refusals)
    for router in (triggers.router, evaluating.router, alerts.acknowledging, run_notes.writing):
        app.include_router(router, prefix=PREFIX, dependencies=dependencies("run"), responses={**refusals, **REFUSALS})
    for router in (labelling.router, audits.drawing):
        app.include_router(
            router, prefix=PREFIX, dependencies=dependencies("label"), responses={**refusals, **REFUSALS}
        )
    if ask_for_keys:
        responses = {**refusals, **REFUSALS}
        app.include_router(
            administration.router, prefix=PREFIX, dependencies=dependencies("admin"), responses=responses
        )
    app.add_middleware(BodyLimit)
    app.add_middleware(AnswersHead)
    if not ask_for_keys:
        app.add_middleware(OwnMachineOnly)
    app.add_middleware(DefaultHeaders, headers=SAFE)

    app.include_router(metrics.router, dependencies=dependencies("read"), responses=refusals)

    dashboard.install(app)
    description.install(app)

    @app.get("/healthz", tags=["health"], dependencies=[known_parameters], responses=documented(422, 503))
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
