"""The Prefect flows: they trigger, order and show the stages. What is done, the ledger says, not Prefect."""

from __future__ import annotations

import logging
import shutil
from typing import Any

import ray
from prefect import flow, tags, task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run

from core.config import RunConfig, parse_config
from orchestrator import artifacts, progress, runs
from orchestrator.home import home
from orchestrator.ledger import STAGES, Stage, run_once
from orchestrator.stages import STAGE_FUNCTIONS, Context
from storage import queries
from storage.rows import RunStatus
from storage.session import open_store

Override = str | int | float | bool | list[float]


def _flow_run_name() -> str:
    """How Prefect shows a flow run: by the coevo run, and the iteration, that it works on."""
    parameters = flow_run.get_parameters()
    return "/".join(str(parameters[name]) for name in ("run", "t") if name in parameters)


def _mark(status: RunStatus) -> Any:
    """A hook: Prefect calls it from the process that started the flow's, which may be gone by then."""

    def mark(_flow: Any, flow_run: Any, _state: Any) -> None:
        with open_store(home().database).write() as session:
            queries.set_run_status(session, flow_run.parameters["run"], status)

    return mark


@flow(flow_run_name=_flow_run_name, on_cancellation=[_mark("cancelled")], on_crashed=[_mark("failed")])
def co_evolve(
    run: str,
    preset: str = "demo",
    iterations: int = 0,
    start_iteration: int = 0,
    start_stage: Stage = "train_challenger",
    overrides: dict[str, Override] = {},  # noqa: B006 (never changed; `None` would make the form ask for a type)
) -> dict[str, Any]:
    """Run the R-Zero loop: Challenger and Solver learn from each other, iteration after iteration.

    Args:
        run: Name of the run: lowercase letters, digits, - and _. One that exists goes on where it was.
        preset: A preset of deploy/runs, or the path of a TOML file. Empty: the run exists already.
        iterations: How many. 0: as the preset says.
        start_iteration: Begin at this iteration; everything before must be done already. 0: wherever the run is.
        start_stage: The stage of that iteration to begin at.
        overrides: Settings by their dotted names, such as {"dataset.candidates": 320}.
    """
    place = home()
    store = open_store(place.database, create=True)
    config = runs.prepare(place, store, run, preset, iterations, overrides)
    runs.check_start(store, run, config, start_iteration, start_stage)
    with runs.status_kept(store, run), tags(run):
        _stage_task("evaluate", 0)(run, 0, "evaluate")
        for t in range(1, config.iterations + 1):
            iteration(run, t)
    shutil.rmtree(place.work / run, ignore_errors=True)
    return {"run": run, "iterations": config.iterations}


@flow(flow_run_name=_flow_run_name)
def iteration(run: str, t: int) -> None:
    """One turn of the outer loop of a run that exists; a stage that is done is not run again.

    Args:
        run: Name of the run.
        t: Which iteration; the one before must be done.
    """
    store = open_store(home().database)
    with store.read() as session:
        config = stored_config(queries.get_run(session, run).config)
    runs.check_start(store, run, config, t, STAGES[0])
    for stage in STAGES:
        _stage_task(stage, t)(run, t, stage)
    artifacts.curves(store, run)


def _stage_task(stage: Stage, t: int) -> Any:
    return task(name=stage, task_run_name=f"{stage} {t}", cache_policy=NO_CACHE, persist_result=False)(run_stage)


def run_stage(run: str, t: int, stage: Stage) -> None:
    """Run one stage under the ledger, with its progress and its result as artifacts."""
    place = home()
    services = place.services()
    store = open_store(place.database)
    with store.read() as session:
        config = stored_config(queries.get_run(session, run).config)
    if not ray.is_initialized():
        ray.init(services.ray_address, namespace="coevo", log_to_driver=False, logging_level=logging.ERROR)
    with progress.shown(run, t, stage) as report:
        context = Context(place, store, services, run, config, t, report)
        result = run_once(store, run, t, stage, lambda: STAGE_FUNCTIONS[stage](context))
    shutil.rmtree(place.work / run / str(t) / stage, ignore_errors=True)  # optimiser states, of use until it is done
    artifacts.stage_result(run, t, stage, result)


def stored_config(tree: Any) -> RunConfig:
    """A run's configuration as it was stored."""
    return parse_config(tree, source="the store")
