"""Why a run is in its state, in one plain sentence. Errors and notes that stages stored may contain a model's text."""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from datetime import datetime

from services.prefect.flow_runs import FlowRun
from storage.rows import PoolRow, Run, Stage, StageRow

_LONGEST = 500  # characters of an error
_BEFORE_ERROR = "Flow run encountered an exception: "  # in the message of a failed flow run, by Prefect 3.7
_TURN = "waiting for {} to finish with the inference applications"
_TURN_BEGINNING, _TURN_END = _TURN.split("{}")

CANCELLING = "its cancellation has been requested; until its process ends: "
PREPARING = "its flow has begun, and its first stage has not"
BETWEEN_STAGES = "between two stages"
DECIDED = "somebody has decided how it goes on, which it does within seconds"


def turn_note(holder: str) -> str:
    """The note of a stage that waits until `holder` has finished with the inference applications."""
    return _TURN.format(holder)


def waits_for_turn(stage: Stage) -> bool:
    """Whether the stage's note is a `turn_note`."""
    note = stage.progress_note or ""
    return not stage.progress_total and note.startswith(_TURN_BEGINNING) and note.endswith(_TURN_END)


def at_work(stage: Stage) -> str:
    """The stage with its progress, or with its note if it has a note only."""
    if stage.progress_total:
        return f"{_iteration_and_stage(stage)}: {stage.progress_done} of {stage.progress_total} {stage.progress_note}"
    return (
        f"{_iteration_and_stage(stage)}: {stage.progress_note}" if stage.progress_note else _iteration_and_stage(stage)
    )


def waits_for_devices(stage: StageRow, job: PoolRow, jobs: Sequence[PoolRow], now: datetime) -> str:
    """The devices that the stage's training waits for, and the trainings that have some of them."""
    others = [
        f"{other.run} trains on {_devices(other)} since {_time(other.since, now)}"
        for other in jobs
        if other.kind == job.kind and other.status == "running"
    ]
    return "; ".join([f"{_iteration_and_stage(stage)}: waits for {_devices(job)}", *others])


def paused(last: Stage | None) -> str:
    after = f" after iteration {last.iteration}" if last else ""
    return f"paused{after} until somebody decides"


def nobody(run: str, since: datetime, now: datetime) -> str:
    return f"no process has worked on it since {_time(since, now)}; `coevo resume {run}` continues it"


def created(run: Run) -> str:
    return f"nothing has begun it yet; `coevo resume {run.name}` does"


def suspended(run: str) -> str:
    return f"it was suspended in Prefect; resume it there while Prefect waits, or with `coevo resume {run}`"


def waiting(flow_run: FlowRun, now: datetime) -> str:
    if flow_run.scheduled is not None and flow_run.scheduled > now:
        return f"scheduled in Prefect for {_time(flow_run.scheduled, now)}"
    minutes = int((now - flow_run.since).total_seconds() // 60)
    so_far = f"no flow runner has taken it for {minutes} min" if minutes >= 1 else "no flow runner has taken it yet"
    late = "; `coevo status` shows whether one is up" if flow_run.name == "Late" else ""
    return f"Prefect has accepted it; {so_far}{late}"


def begins(flow_run: FlowRun) -> str:
    return PREPARING if flow_run.state == "RUNNING" else "a flow runner has taken it and starts its process"


def failed_before_it_began(flow_run: FlowRun) -> str:
    return f"failed before its first stage began: {_message(flow_run) or 'Prefect gave no reason'}"


def refused(flow_run: FlowRun) -> str:
    """Why a later request has changed nothing about a run that has ended."""
    return f"a later request was refused: {_message(flow_run) or 'Prefect gave no reason'}"


def failed(stage: Stage | None, flow_run: FlowRun | None) -> str:
    """`stage`: the stage that failed, or during which the run's process ended."""
    if stage is not None and stage.status == "failed":
        return f"{_name(stage)} failed: {_shortened(stage.error or 'no reason was stored')}"
    during = f" during {_name(stage)}" if stage else ""
    message = _message(flow_run)
    return f"its flow failed{during}" + (f": {message}" if message else "; Prefect has its log")


def cancelled(stage: Stage | None, flow_run: FlowRun | None) -> str:
    """`stage` is the one that was cut off."""
    during = f" during {_name(stage)}" if stage else ""
    message = _message(flow_run) if flow_run is not None and flow_run.state == "CANCELLED" else None
    return f"cancelled{during}" + (f": {message}" if message else "")


def out_of_budget(run: Run, stages: Sequence[Stage]) -> str:
    """The message of the stage that refused to go on, if one was at work when the budget was spent."""
    prefix = f"BudgetSpent: run {run.name}: "
    errors = [stage.error for stage in reversed(stages) if stage.error and stage.error.startswith(prefix)]
    if errors:
        return _shortened(errors[0].removeprefix(prefix))
    return f"one of its budgets is spent; `coevo resume {run.name} --set budget.…=…` continues it with a larger one"


def stopped(stages: Sequence[StageRow]) -> str:
    """Who stopped the run: the stage that decided has it in its result."""
    deciding = {row.stage: row.result or {} for row in stages if row.status == "done"}
    after = f"after iteration {stages[-1].iteration}" if stages else "before its first iteration"
    if deciding.get("ask_a_person", {}).get("action") == "stop":
        return f"a person stopped it {after}"
    alarms = deciding.get("check_health", {}).get("alarms", [])
    if any(alarm.get("action") in ("stop", "roll_back") for alarm in alarms):
        return f"the guard stopped it {after}"
    return f"early stopping ended it {after}"


def done(run: Run) -> str:
    return f"all {run.iterations} iterations are done" if run.iterations != 1 else "its only iteration is done"


def _iteration_and_stage(stage: Stage) -> str:
    return f"iteration {stage.iteration}, {stage.stage}"


def _name(stage: Stage) -> str:
    return f"{stage.stage} {stage.iteration}"


def _devices(job: PoolRow) -> str:
    return f"{job.units:g} {job.kind}{'' if job.units == 1 else 's'}"


def _time(time: datetime, now: datetime) -> str:
    return f"{time:%H:%M} UTC" if time.date() == now.date() else f"{time:%Y-%m-%d %H:%M} UTC"


def _message(flow_run: FlowRun | None) -> str | None:
    """What Prefect says of the flow run, without its words before an error's class. A class of ours, such as RunError,
    is left out too: its message says all. One of Python's stays, since "KeyError: 'x'" needs it."""
    if flow_run is None or not flow_run.message:
        return None
    text = flow_run.message.removeprefix(_BEFORE_ERROR)
    name, _, message = text.partition(": ")
    is_named = text != flow_run.message and message and name.isidentifier()
    return _shortened(message if is_named and not hasattr(builtins, name) else text)


def _shortened(text: str) -> str:
    """The text; if it is long, its beginning up to the end of a word, and a sign that more follows."""
    return text if len(text) <= _LONGEST else re.sub(r"\s+\S*$", "", text[:_LONGEST]) + " …"
