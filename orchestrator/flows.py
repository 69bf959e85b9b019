"""The Prefect flows of runs: the main line, from a start in Prefect or by `coevo run` to the end of a run.

- `plan.py` says which stages a run has, in order; `stages/` does their work, one file each.
- `ledger.py` says which of them are done, and keeps other processes from the run and from a stage at work.
- `runs.py` creates a run, and knows its status and its decisions; `run.py` is what all of them are handed.
- `reporting/` shows the work in Prefect, in the terminal and in the run's log; `costs.py` counts it.

This file calls all of these, and no other room imports it except the flow runner and the command line. A stage knows
neither flows nor Prefect. The ledger knows neither stages nor flows. Prefect starts and shows; the ledger is the truth:
a stage that is done never runs again, whatever Prefect repeats.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
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

from core import logs
from core.processes.faultpoints import faultpoint
from core.types import Flow, Stage, StageKey
from core.validation.bounds import MOST_ITERATIONS, Iterations
from orchestrator import runs
from orchestrator.check.needs import services_of
from orchestrator.check.presets import presets_of
from orchestrator.check.start import RunError, find_run
from orchestrator.costs import refuse_spent
from orchestrator.disk.files import DiskError
from orchestrator.disk.retention import remove_unkept
from orchestrator.installation.home import home
from orchestrator.installation.reachable import wait_for_ray
from orchestrator.ledger import LastWrite, note_progress, other_holder, run_held, run_once
from orchestrator.plan import stages_of
from orchestrator.reporting import artifacts, progress, run_log
from orchestrator.reporting.flow_process import flow_process, is_subflow
from orchestrator.reporting.results import stage_result
from orchestrator.run import Run, at_hand, run_at_hand
from orchestrator.stages import ask_a_person
from orchestrator.stages.by_name import last_write_of
from orchestrator.stages.context import Context
from orchestrator.stages.training.running import warm_up
from orchestrator.trackers.tracked import tell_trackers, tracked
from services.inference.keys import hide_keys
from services.prefect.flow_runs import EXISTING
from storage import queries
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
        run = flow_run.parameters["run"]
        with closing(open_store(home().database)) as store:
            if other_holder(store, run) is not None:
                return
            if runs.status_of(store, run) != "cancelled":
                runs.set_status(store, run, runs.ended_as(store, run) or status)
            now = runs.status_of(store, run)
        if now == status:
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
    from_run: str = "",
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
        from_run: An iteration of another run, such as demo:3, after which this one begins, with its settings and its
            iterations up to that one. Choose "existing run" above.
    """
    return _run_to_its_end(run, preset_file or preset, iterations, overrides, "co_evolve", from_run)


@flow(flow_run_name=_flow_run_name, on_cancellation=[_store("cancelled")], on_crashed=[_store("failed")])
def self_train(
    run: _RunName,
    preset: _PromptsPreset = "micro",
    iterations: _Length = 0,
    preset_file: str = "",
    overrides: dict[str, Any] = {},  # noqa: B006 (as above)
    from_run: str = "",
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
        from_run: A round of another run, such as mine:3, after which this one begins, with its settings and its rounds
            up to that one. Choose "existing run" above.
    """
    return _run_to_its_end(run, preset_file or preset, iterations, overrides, "self_train", from_run)


@flow_process()
def _run_to_its_end(
    name: str, preset: str, iterations: int, overrides: dict[str, Any], flow_name: Flow, from_run: str
) -> dict[str, Any]:
    given, here = run_at_hand(), home()
    preset = "" if preset == EXISTING else preset
    own_store = closing(open_store(here.database, create=True)) if given is None else nullcontext(given.store)
    with own_store as store:
        with artifacts.flushed():
            _tag(store, name, preset)
        with run_held(store, name):
            checked = given.config if given else None
            config = runs.prepare(here, store, name, preset, iterations, overrides, flow_name, checked, from_run)
            with store.read() as session:
                begins_at = queries.forks.begins_at(session, name)
            run = Run(name, here, store, here.services(), config)
            with at_hand(run), tracked(run), _suspension_noted(run), runs.status_kept(run), artifacts.flushed():
                artifacts.dashboard_link(name, run.services.pages_url)
                for stage in stages_of(config, 0) if not begins_at else ():
                    _stage_task(run, 0, stage)
                # This flow's heartbeat covers its iterations. Another one for each would take up to a second to end.
                with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
                    for t in range(max(1, begins_at), config.iterations + 1):
                        iteration(name, t)
                        faultpoint("iteration ended", str(t))
                        artifacts.figures(store, name)
                        action = _action_after(run, t)
                        _remove_unkept(run)
                        if action == "stop":
                            raise runs.RunStopped
            runs.clear(run)
        return {"run": name, "status": runs.status_of(store, name), "solver": runs.result_of(store, name)}


@flow(flow_run_name=_flow_run_name)
def iteration(run: _RunName, t: Iterations) -> None:
    """Run one iteration of an existing run. Stages that are done are not run again.

    Args:
        run: Name of the run.
        t: Number of the iteration; the one before must be done.
    """
    with flow_process(), _opened(run, t) as its_run:
        runs.check_start(its_run, t)
        for stage in stages_of(its_run.config, t):
            _stage_task(its_run, t, stage)
        if not is_subflow():
            artifacts.figures(its_run.store, run)
            _remove_unkept(its_run)


@contextmanager
def _opened(run: str, t: int) -> Iterator[Run]:
    """The run of an iteration. One that was started by itself opens its run, and has it while the block runs."""
    if is_subflow() and (given := run_at_hand()) is not None:
        _tag(given.store, run, iteration=t)
        yield given
        return
    with closing(open_store(home().database)) as store:
        with artifacts.flushed():
            _tag(store, run, iteration=t)
        config = runs.stored_config(store, run)
        its_run = Run(run, home(), store, home().services(), config)
        with run_held(store, run), tracked(its_run), artifacts.flushed():
            yield its_run


def _tag(store: Store, run: str, preset: str = "", iteration: int | None = None) -> None:
    """Give the flow run its tags. Flows do it before they check anything, so that one that is refused has them too."""
    stored = find_run(store, run)
    artifacts.tagged(run, stored.preset if stored else preset or None, iteration)


def _remove_unkept(run: Run) -> None:
    """Remove the files of the checkpoints that the run does not keep. The run goes on if one cannot be removed."""
    try:
        remove_unkept(run.home, run.store, run.name, run.config.checkpoints)
    except DiskError as error:
        log.warning("run %s: %s", run, error)


@contextmanager
def _suspension_noted(run: Run) -> Iterator[None]:
    """Set the run's status to paused if somebody suspends its flow run in Prefect, which ends the process."""
    try:
        yield
    except Pause:
        runs.set_status_if_held(run, "paused")
        raise


def _action_after(run: Run, t: int) -> str:
    """The action decided after iteration t. If it is to ask a person, wait for the answer and return that action."""
    decision = runs.decision(run.store, run.name, t)
    if decision["action"] != "pause":
        return str(decision["action"])
    runs.set_status_if_held(run, "paused")
    with run_log.recorded(run.home, run.name, t):
        where = f"in the Prefect UI, on the dashboard, or with `coevo runs decide {run}`"
        run_log.say(f"paused after iteration {t} until somebody decides, {where}: {'; '.join(decision['warnings'])}")
    page = artifacts.run_page(run.services.pages_url, run.name, t)
    with run.store.read() as session:
        form = Answer.with_initial_data(description=ask_a_person.description(session, run.name, t, page))
    key = f"{run}-{t}-{flow_run.run_count}"  # Prefect would not wait again for a key that was used before
    try:
        answer = pause_flow_run(wait_for_input=form, timeout=_PATIENCE_S, poll_interval=_POLL_S, key=key)
    except ValidationError as error:
        raise RunError(f"run {run}: resumed without a decision; `coevo resume {run}` asks again") from error
    if not runs.set_status_if_held(run, "running"):
        raise LeaseLost(f"run {run}: another process has taken it over; the answer was not needed")
    _stage_task(run, t, "ask_a_person", answer.model_dump(include={"decision", "note"}))
    return str(runs.decision(run.store, run.name, t)["action"])


def _stage_task(run: Run, t: int, stage: Stage, answer: dict[str, Any] | None = None) -> None:
    """Run a stage as a task of Prefect. `answer` is that of a person."""

    # The task has no tags. Before a tagged task begins, Prefect's client requests a slot of each tag from the server.
    # While the server's SQLite is busy, it answers 503, and the client then waits for two seconds.
    @task(name=stage, task_run_name=f"{stage} {t}", cache_policy=NO_CACHE, persist_result=False)
    def stage_task() -> None:
        run_stage(run, t, stage, answer)

    stage_task()


def run_stage(run: Run, t: int, stage: Stage, answer: dict[str, Any] | None = None) -> None:
    """Run one stage under the ledger, and show its progress and result in Prefect. `answer` is that of a person."""
    hide_keys(services_of(run.config))
    if not ray.is_initialized():
        address = wait_for_ray(run.home).ray_address
        ray.init(address, namespace="coevo", log_to_driver=False, logging_level=logging.ERROR)
        warm_up(run.config)
    key, started, ran = StageKey(run.name, t, stage), time.monotonic(), False
    left = partial(progress.time_left, run.store, run.name, run.config)

    def body() -> LastWrite:
        nonlocal ran
        ran = True
        with progress.reported(key, partial(note_progress, run.store, key), left) as report:
            return last_write_of(Context(run, t, stage, report), answer)

    with run_log.recorded(run.home, run.name, t, stage):
        refuse_spent(run.store, run.name, run.config)
        result = run_once(run.store, key, body)
        tell_trackers(run.name, t)
        ending = f"{time.monotonic() - started:.1f} s" if ran else "it was done before"
        with logs.only_shown(f"the result of {stage} {t}"):
            with run.store.read() as session:
                shown = stage_result(session, key, result)
            run_log.say(f"{stage} {t}: {shown.line}; {ending}")
            artifacts.stage_result(key, shown, run.services.pages_url)
    # These files, such as a training's step folders, are needed only until the stage is done.
    shutil.rmtree(run.home.work / run.name / str(t) / stage, ignore_errors=True)
