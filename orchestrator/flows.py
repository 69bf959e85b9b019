"""The Prefect flows of runs: stages in order, and how Prefect shows them. The ledger knows which stages are done."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Annotated, Any, Literal

import ray
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import Pause
from prefect.flow_runs import pause_flow_run
from prefect.input import RunInput
from prefect.logging.loggers import flow_run_logger
from prefect.runtime import flow_run
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from pydantic import Field, ValidationError, WithJsonSchema
from sqlalchemy.orm import Session

from core import logs
from core.faultpoints import faultpoint
from core.settings.bounds import MOST_ITERATIONS, Iterations
from core.types import Flow, Stage, StageKey
from orchestrator import runs
from orchestrator.check.needs import services_of
from orchestrator.check.presets import presets_of
from orchestrator.check.start import RunError, find_run
from orchestrator.costs import refuse_spent
from orchestrator.disk.files import DiskError
from orchestrator.disk.retention import remove_unkept
from orchestrator.installation.home import Home, home
from orchestrator.installation.reachable import wait_for_ray
from orchestrator.ledger import LastWrite, Result, note_progress, other_holder, run_held, run_once
from orchestrator.loop import STAGE_FUNCTIONS
from orchestrator.plan import stages_of
from orchestrator.reporting import artifacts, progress, run_log
from orchestrator.reporting.flow_process import flow_process, is_subflow
from orchestrator.reporting.results import stage_result
from orchestrator.stages import decision_form
from orchestrator.stages.context import Context
from orchestrator.stages.health import decided
from orchestrator.stages.training import warm_up
from services.drift.series import refresh_after
from services.inference.keys import hide_keys
from services.prefect.flow_runs import EXISTING
from storage.errors import LeaseLost
from storage.queries.runs import RUN_NAME
from storage.rows import RunStatus
from storage.session import Store, open_store

log = logging.getLogger(__name__)

# The form in Prefect shows a list of these. Calls in Python may also give a path, or nothing for an existing run.
_LoopPreset = Annotated[str, WithJsonSchema({"type": "string", "enum": [*presets_of("co_evolve"), EXISTING]})]
_PromptsPreset = Annotated[str, WithJsonSchema({"type": "string", "enum": [*presets_of("self_train"), EXISTING]})]

_RunName = Annotated[str, Field(pattern=f"^{RUN_NAME.pattern}$")]
_Length = Annotated[int, Field(ge=0, le=MOST_ITERATIONS)]

_PATIENCE_S = 7 * 24 * 3600  # to wait for a person's answer; then the run fails, and asks again when it is resumed
_POLL_S = 5


class Answer(RunInput):
    """How a run continues after its guard raised an alarm."""

    # No default, so that resuming without the form is not taken for a decision.
    decision: Literal["go on", "roll back", "stop"] = Field(description="how the run goes on, as described above")
    note: str = Field("", description="stored with the decision")


def _flow_run_name() -> str:
    """The name of a flow run in Prefect: the coevo run, and the iteration if there is one."""
    parameters = flow_run.get_parameters()
    return "/".join(str(parameters[name]) for name in ("run", "t") if name in parameters)


def _store(status: RunStatus) -> Any:
    """A hook that sets the run's status. Prefect calls it in the process that started the flow's, which may have ended.
    Its name is in Prefect's log.

    It leaves the status alone if another process works on the run. It also does so if the run is cancelled already:
    after Ctrl-C the flow stores that, and then Prefect reports the end of the process as a crash.
    """

    def store_status(flow: Any, flow_run: Any, state: Any) -> None:
        del state  # Prefect passes all three, by position in one process and by name in another
        store, run = open_store(home().database), flow_run.parameters["run"]
        if other_holder(store, run) is not None:
            return
        if runs.status_of(store, run) != "cancelled":
            runs.set_status(store, run, runs.ended_as(store, run) or status)
        if (now := runs.status_of(store, run)) == status:
            way_on = f"Retry here or `coevo resume {run}` continues it; finished stages stay"
            flow_run_logger(flow_run, flow).info("run %s is %s; %s", run, now, way_on)

    store_status.__name__ = f"store that the run is {status}"
    return store_status


@flow(flow_run_name=_flow_run_name, on_cancellation=[_store("cancelled")], on_crashed=[_store("failed")])
def co_evolve(
    run: _RunName,
    preset: _LoopPreset = "demo",
    iterations: _Length = 0,
    preset_file: str = "",
    overrides: dict[str, Any] = {},  # noqa: B006 (never changed; with `None` the form would ask for a type)
) -> dict[str, Any]:
    """Run the R-Zero loop: Challenger and Solver learn from each other, iteration after iteration.

    Args:
        run: Name of the run: at most 64 letters, digits and . _ -. An existing run continues where it stopped. When the
            flow run begins, this name replaces what "Run Name" above says.
        preset: Settings of the run, in deploy/runs. Choose "existing run", the last of the list, to continue one.
        iterations: Number of iterations. 0 takes the preset's number, or keeps that of an existing run.
        preset_file: Path of a TOML file on the flow runner's machine, or name of a preset that is newer than the list;
            it is taken instead of the preset.
        overrides: Settings by their dotted names, such as {"dataset.candidates": 320}.
    """
    return _run_to_its_end(run, _chosen(preset, preset_file), iterations, overrides, "co_evolve")


@flow(flow_run_name=_flow_run_name, on_cancellation=[_store("cancelled")], on_crashed=[_store("failed")])
def self_train(
    run: _RunName,
    preset: _PromptsPreset = "micro",
    iterations: _Length = 0,
    preset_file: str = "",
    overrides: dict[str, Any] = {},  # noqa: B006 (as above)
) -> dict[str, Any]:
    """Train a Solver on a given prompt set with one of the papers' methods, round after round, without a Challenger.

    Args:
        run: Name of the run: at most 64 letters, digits and . _ -. An existing run continues where it stopped. When the
            flow run begins, this name replaces what "Run Name" above says.
        preset: Settings of the run, in deploy/runs. Choose "existing run", the last of the list, to continue one.
        iterations: Number of rounds. 0 takes the preset's number, or keeps that of an existing run.
        preset_file: Path of a TOML file on the flow runner's machine, or name of a preset that is newer than the list;
            it is taken instead of the preset.
        overrides: Settings by their dotted names, such as {"solver.reward.type": "evol_rl"}.
    """
    return _run_to_its_end(run, _chosen(preset, preset_file), iterations, overrides, "self_train")


def _chosen(preset: str, preset_file: str) -> str:
    """The preset that was chosen in the form, or its file; empty for an existing run."""
    return preset_file or ("" if preset == EXISTING else preset)


@flow_process()
def _run_to_its_end(
    run: str, preset: str, iterations: int, overrides: dict[str, Any], flow_name: Flow
) -> dict[str, Any]:
    coevo_home = home()
    store = open_store(coevo_home.database, create=True)
    with artifacts.written():
        _tag(store, run, preset)
    with run_held(store, run):
        config = runs.prepare(coevo_home, store, run, preset, iterations, overrides, flow=flow_name)
        with _suspension_noted(store, run), runs.status_kept(store, run), artifacts.written():
            pages_url = coevo_home.services().pages_url
            artifacts.dashboard_link(run, pages_url)
            for stage in stages_of(config, 0):
                _stage_task(stage, 0)(run, 0, stage)
            # This flow's heartbeat covers its iterations. Another one for each would take up to a second to end.
            without_heartbeat = temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None})
            with without_heartbeat:
                for t in range(1, config.iterations + 1):
                    iteration(run, t)
                    faultpoint("iteration ended", str(t))
                    artifacts.figures(store, run)
                    action = _action_after(store, run, t, artifacts.run_page(pages_url, run, t))
                    _remove_unkept(coevo_home, store, run)
                    if action == "stop":
                        raise runs.RunStopped
        runs.clear(coevo_home, store, run, config)
    return {"run": run, "status": runs.status_of(store, run), "solver": runs.result_of(store, run)}


def _tag(store: Store, run: str, preset: str = "", iteration: int | None = None) -> None:
    """Give the flow run its tags. Flows do it before they check anything, so that one that is refused has them too."""
    stored = find_run(store, run)
    artifacts.tagged(run, stored.preset if stored else preset or None, iteration)


def _remove_unkept(coevo_home: Home, store: Store, run: str) -> None:
    """Remove the files of the checkpoints that the run does not keep. The run goes on if one cannot be removed."""
    try:
        remove_unkept(coevo_home, store, run, runs.stored_config(store, run).checkpoints)
    except DiskError as error:
        log.warning("run %s: %s", run, error)


@contextmanager
def _suspension_noted(store: Store, run: str) -> Iterator[None]:
    """Set the run's status to paused if somebody suspends its flow run in Prefect, which ends the process."""
    try:
        yield
    except Pause:
        runs.set_status_if_held(store, run, "paused")
        raise


def _action_after(store: Store, run: str, t: int, page: str) -> str:
    """The action decided after iteration t. If it is to ask a person, wait for the answer and return that action.

    `page` is the iteration's page on the dashboard, or empty.
    """
    decision = runs.decision(store, run, t)
    if decision["action"] != "pause":
        return str(decision["action"])
    runs.set_status_if_held(store, run, "paused")
    with run_log.kept(home(), run, t):
        where = f"in the Prefect UI, on the dashboard, or with `coevo runs decide {run}`"
        run_log.say(f"paused after iteration {t} until somebody decides, {where}: {'; '.join(decision['warnings'])}")
    with store.read() as session:
        form = Answer.with_initial_data(description=decision_form.description(session, run, t, page))
    key = f"{run}-{t}-{flow_run.run_count}"  # Prefect would not wait again for a key that was used before
    try:
        answer = pause_flow_run(wait_for_input=form, timeout=_PATIENCE_S, poll_interval=_POLL_S, key=key)
    except ValidationError as error:
        raise RunError(f"run {run}: resumed without a decision; `coevo resume {run}` asks again") from error
    if not runs.set_status_if_held(store, run, "running"):
        raise LeaseLost(f"run {run}: another process has taken it over; the answer was not needed")
    _stage_task("ask_a_person", t)(run, t, "ask_a_person", answer.model_dump(include={"decision", "note"}))
    return str(runs.decision(store, run, t)["action"])


@flow(flow_run_name=_flow_run_name)
def iteration(run: _RunName, t: Iterations) -> None:
    """Run one iteration of an existing run. Stages that are done are not run again.

    Args:
        run: Name of the run.
        t: Number of the iteration; the one before must be done.
    """
    _iterate(run, t)


@flow_process()
def _iterate(run: str, t: int) -> None:
    store = open_store(home().database)
    is_top_level = not is_subflow()
    with artifacts.written() if is_top_level else nullcontext():
        _tag(store, run, iteration=t)
    config = runs.stored_config(store, run)
    stages = stages_of(config, t)
    with run_held(store, run), artifacts.written() if is_top_level else nullcontext():
        runs.check_start(store, run, config, t)
        for stage in stages:
            _stage_task(stage, t)(run, t, stage)
        if is_top_level:
            artifacts.figures(store, run)
            _remove_unkept(home(), store, run)


def _stage_task(stage: Stage, t: int) -> Any:
    # The task has no tags. Before a tagged task begins, Prefect's client requests a slot of each tag from the server.
    # While the server's SQLite is busy, it answers 503, and the client then waits for two seconds.
    return task(name=stage, task_run_name=f"{stage} {t}", cache_policy=NO_CACHE, persist_result=False)(run_stage)


def run_stage(run: str, t: int, stage: Stage, answer: dict[str, Any] | None = None) -> None:
    """Run one stage under the ledger, and show its progress and result in Prefect. `answer` is that of a person."""
    coevo_home = home()
    services = coevo_home.services()
    store = open_store(coevo_home.database)
    config = runs.stored_config(store, run)
    hide_keys(services_of(config))
    if not ray.is_initialized():
        services = wait_for_ray(coevo_home)
        ray.init(services.ray_address, namespace="coevo", log_to_driver=False, logging_level=logging.ERROR)
        warm_up(config)
    key, started, ran = StageKey(run, t, stage), time.monotonic(), False
    with run_log.kept(coevo_home, run, t, stage):
        refuse_spent(store, run, config)

        def body() -> LastWrite:
            nonlocal ran
            ran = True
            left = partial(progress.time_left, store, run, config)
            with progress.shown(run, t, stage, partial(note_progress, store, run, t, stage), left) as report:
                context = Context(coevo_home, store, services, run, config, t, stage, report)
                last_write = decided(context, **answer) if answer is not None else STAGE_FUNCTIONS[stage](context)
            return partial(_with_series, key, last_write)

        result = run_once(store, run, t, stage, body)
        ending = f"{time.monotonic() - started:.1f} s" if ran else "it was done before"
        with logs.only_shown(f"the result of {stage} {t}"):
            with store.read() as session:
                shown = stage_result(session, key, result)
            run_log.say(f"{stage} {t}: {shown.line}; {ending}")
            artifacts.stage_result(run, t, stage, shown, services.pages_url)
    # These files, such as a training's step folders, are needed only until the stage is done.
    shutil.rmtree(coevo_home.work / run / str(t) / stage, ignore_errors=True)


def _with_series(key: StageKey, last_write: LastWrite, session: Session) -> Result:
    """The stage's last write, and the figures that it completes, so that they are seen before `check_health`."""
    result = last_write(session)
    refresh_after(session, key.run, key.iteration, key.stage)
    return result
