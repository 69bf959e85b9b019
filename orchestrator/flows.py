"""The Prefect flows: they trigger, order and show the stages. What is done, the ledger says, not Prefect."""

from __future__ import annotations

import logging
import shutil
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal

import ray
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.flow_runs import pause_flow_run
from prefect.input import RunInput
from prefect.runtime import flow_run
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from pydantic import Field, ValidationError

from core.types import Flow, Stage
from orchestrator import artifacts, progress, runs
from orchestrator.installation.home import home
from orchestrator.installation.orphans import is_subflow, note_process
from orchestrator.ledger import LastWrite, note_progress, other_holder, run_held, run_once
from orchestrator.plan import stages_of
from orchestrator.stages.context import Context
from orchestrator.stages.functions import STAGE_FUNCTIONS
from orchestrator.stages.health import decided
from orchestrator.stages.training import warm_up
from storage.rows import RunStatus
from storage.session import Store, open_store

Override = str | int | float | bool | list[float]

_PATIENCE_S = 7 * 24 * 3600  # for a person; then the run fails, and asks again when it is resumed
_POLL_S = 5


class Answer(RunInput):
    """What to do with a run whose guard raised an alarm."""

    # No default: whoever resumes without the form has decided nothing.
    decision: Literal["go on", "roll back", "stop"] = Field(
        description="roll back: on from the best checkpoint before it; stop: end the run with that one"
    )
    note: str = Field("", description="kept with the decision")


def _flow_run_name() -> str:
    """How Prefect shows a flow run: by the coevo run, and the iteration, that it works on."""
    parameters = flow_run.get_parameters()
    return "/".join(str(parameters[name]) for name in ("run", "t") if name in parameters)


def _mark(status: RunStatus) -> Any:
    """A hook: Prefect calls it from the process that started the flow's, which may be gone by then.

    A flow run that was not the one at work on the run leaves its status alone. So does a crash of one that was stopped
    with Ctrl-C: the flow has noted that the run is cancelled, and Prefect calls the end of its process a crash.
    """

    def mark(flow: Any, flow_run: Any, state: Any) -> None:
        del flow, state  # Prefect gives all three, by place in one process and by name in the other
        store, run = open_store(home().database), flow_run.parameters["run"]
        if other_holder(store, run) is None and runs.status_of(store, run) != "cancelled":
            runs.set_status(store, run, status)

    return mark


@flow(flow_run_name=_flow_run_name, on_cancellation=[_mark("cancelled")], on_crashed=[_mark("failed")])
def co_evolve(
    run: str,
    preset: str = "demo",
    iterations: int = 0,
    overrides: dict[str, Override] = {},  # noqa: B006 (never changed; `None` would make the form ask for a type)
) -> dict[str, Any]:
    """Run the R-Zero loop: Challenger and Solver learn from each other, iteration after iteration.

    Args:
        run: Name of the run: lowercase letters, digits, - and _. One that exists goes on where it was.
        preset: A preset of deploy/runs, or the path of a TOML file. Empty: the run exists already.
        iterations: How many. 0: as the preset says.
        overrides: Settings by their dotted names, such as {"dataset.candidates": 320}.
    """
    return _run_to_its_end(run, preset, iterations, overrides, "co_evolve")


@flow(flow_run_name=_flow_run_name, on_cancellation=[_mark("cancelled")], on_crashed=[_mark("failed")])
def self_train(
    run: str,
    preset: str = "micro",
    iterations: int = 0,
    overrides: dict[str, Override] = {},  # noqa: B006 (as above)
) -> dict[str, Any]:
    """Train a Solver on a given prompt set by one of the papers' methods, round after round; there is no Challenger.

    Args:
        run: Name of the run: lowercase letters, digits, - and _. One that exists goes on where it was.
        preset: A preset of deploy/runs with a [prompts] table, or the path of a TOML file. Empty: the run exists.
        iterations: How many rounds. 0: as the preset says.
        overrides: Settings by their dotted names, such as {"solver.reward.type": "evol_rl"}.
    """
    return _run_to_its_end(run, preset, iterations, overrides, "self_train")


def _run_to_its_end(
    run: str, preset: str, iterations: int, overrides: dict[str, Override], name: Flow
) -> dict[str, Any]:
    note_process()
    coevo_home = home()
    store = open_store(coevo_home.database, create=True)
    with run_held(store, run):
        config = runs.prepare(coevo_home, store, run, preset, iterations, overrides, flow=name)
        with runs.status_kept(store, run), artifacts.written():
            for stage in stages_of(config, 0):
                _stage_task(stage, 0)(run, 0, stage)
            # This flow has a heartbeat; one for each iteration, in the same process, takes up to a second to end.
            without_heartbeat = temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None})
            with without_heartbeat:
                for t in range(1, config.iterations + 1):
                    iteration(run, t)
                    artifacts.curves(store, run)
                    if _ask_if_need_be(store, run, t) == "stop":
                        raise runs.RunStopped
    shutil.rmtree(coevo_home.work / run, ignore_errors=True)
    return {"run": run, "status": runs.status_of(store, run), "solver": runs.result_of(store, run)}


def _ask_if_need_be(store: Store, run: str, t: int) -> str:
    """What was decided after iteration t; a person is asked where the guard says so and none has answered yet."""
    before = runs.decision(store, run, t)
    if before["action"] != "pause":
        return str(before["action"])
    runs.set_status(store, run, "paused")
    why = "\n".join(f"- {warning}" for warning in before["warnings"])
    print(f"run {run} is paused after iteration {t}, until somebody answers in the Prefect UI:\n{why}", flush=True)
    asked = Answer.with_initial_data(description=f"**Iteration {t}:**\n\n{why}")
    key = f"{run}-{t}-{flow_run.run_count}"  # a pause that was there before would not wait again
    try:
        answer = pause_flow_run(wait_for_input=asked, timeout=_PATIENCE_S, poll_interval=_POLL_S, key=key)
    except ValidationError as error:
        raise runs.RunError(f"run {run}: resumed without a decision; `coevo resume {run}` asks again") from error
    runs.set_status(store, run, "running")
    _stage_task("ask_a_person", t)(run, t, "ask_a_person", answer.model_dump(include={"decision", "note"}))
    return str(runs.decision(store, run, t)["action"])


@flow(flow_run_name=_flow_run_name)
def iteration(run: str, t: int) -> None:
    """One turn of the outer loop of a run that exists; a stage that is done is not run again.

    Args:
        run: Name of the run.
        t: Which iteration; the one before must be done.
    """
    note_process()
    store = open_store(home().database)
    config = runs.stored_config(store, run)
    stages = stages_of(config, t)
    alone = not is_subflow()
    with run_held(store, run), artifacts.written() if alone else nullcontext():
        runs.check_start(store, run, config, t)
        for stage in stages:
            _stage_task(stage, t)(run, t, stage)
        if alone:
            artifacts.curves(store, run)


def _stage_task(stage: Stage, t: int) -> Any:
    # Without tags: before a tagged task begins, Prefect's server is asked for a slot of each tag, and while its SQLite
    # is busy it answers 503, after which Prefect's client waits for two seconds.
    return task(name=stage, task_run_name=f"{stage} {t}", cache_policy=NO_CACHE, persist_result=False)(run_stage)


def run_stage(run: str, t: int, stage: Stage, answer: dict[str, Any] | None = None) -> None:
    """Run one stage under the ledger, with its progress and its result as artifacts. `answer` is a person's."""
    coevo_home = home()
    services = coevo_home.services()
    store = open_store(coevo_home.database)
    config = runs.stored_config(store, run)
    if not ray.is_initialized():
        ray.init(services.ray_address, namespace="coevo", log_to_driver=False, logging_level=logging.ERROR)
        warm_up(config)
    with progress.shown(run, t, stage, partial(note_progress, store, run, t, stage)) as report:
        context = Context(coevo_home, store, services, run, config, t, report)

        def body() -> LastWrite:
            return decided(context, **answer) if answer is not None else STAGE_FUNCTIONS[stage](context)

        result = run_once(store, run, t, stage, body)
    # The optimiser's states, among others, are of use until the stage is done.
    shutil.rmtree(coevo_home.work / run / str(t) / stage, ignore_errors=True)
    artifacts.stage_result(run, t, stage, result)
