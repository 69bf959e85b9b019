"""The state of a run: one word, and the reason for it in one sentence. All views of runs show these.

No state is stored. It derives from the run's status, its latest stages, the leases of the processes that work on it,
the worker pool, and Prefect, which alone knows the runs that wait for a flow runner. A killed process counts as alive
until its lease expires, which takes at most a minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from sqlalchemy.orm import Session

from core.types import Stage as StageName
from services.prefect.flow_runs import FlowRun
from services.views import reasons
from storage import queries
from storage.rows import ENDED, PoolRow, Run, RunLease, StageRow

State = Literal[
    "created",
    "waiting",
    "preparing",
    "queued",
    "running",
    "paused",
    "interrupted",
    "cancelled",
    "failed",
    "out_of_budget",
    "stopped",
    "done",
]
MEANINGS: dict[State, str] = {
    "created": "it is stored, and nothing has begun it yet",
    "waiting": "Prefect has accepted the run, and no flow runner has taken it yet",
    "preparing": "a flow runner has taken the run, or its flow has begun; none of its stages has begun since",
    "queued": "its training waits for devices in the worker pool, or its stage waits until another stage has finished "
    "with the inference applications",
    "running": "a process works on it",
    "paused": "a process waits until a person decides how the run goes on",
    "interrupted": "it has not ended, but no process works on it; it can be resumed",
    "cancelled": "a person ended it; it can be resumed",
    "failed": "an error ended it; it can be resumed",
    "out_of_budget": "it has spent one of its budgets; it can be resumed with a larger one",
    "stopped": "the guard, early stopping or a person's decision ended it for good",
    "done": "all its iterations are done; it can be resumed with more",
}


@dataclass(frozen=True, slots=True)
class RunState:
    """What is to be known of a run at a glance. Times are in UTC."""

    state: State
    reason: str
    since: datetime
    iteration: int | None = None  # of `stage`, or after which the run has paused or was stopped
    stage: StageName | None = None  # that is at work or waits, or in which the run was interrupted or has ended
    active: bool = False  # a process works on it, or will once a flow runner takes it; so it may change by itself


class _Result(NamedTuple):
    state: State
    reason: str
    since: datetime
    stage: StageRow | None = None


@dataclass(frozen=True, slots=True)
class _Facts:
    """All that the state of one run derives from."""

    name: str
    run: Run | None  # None: only Prefect knows it
    stages: Sequence[StageRow]  # of the latest iteration
    lease: RunLease | None  # perhaps expired
    flow_run: FlowRun | None  # the newest
    jobs: Sequence[PoolRow]  # of all runs, those that wait or run
    now: datetime

    @property
    def holder(self) -> RunLease | None:
        return self.lease if self.lease is not None and self.lease.expires > self.now else None

    @property
    def unfinished(self) -> StageRow | None:
        """The stage that runs or was cut off."""
        return next((stage for stage in reversed(self.stages) if stage.status == "running"), None)

    @property
    def begun_status(self) -> bool:
        """Whether a stage has begun since the run got its status."""
        return any(self.run and stage.started_at >= self.run.updated_at for stage in self.stages)


def states_of(
    session: Session, runs: Mapping[str, Run | None], flow_runs: Mapping[str, FlowRun]
) -> dict[str, RunState]:
    """The state of each run, by name. `flow_runs` has the newest flow run of each run, if Prefect has one; a run that
    only Prefect knows (None) must have one there."""
    stages, leases = queries.ledger.latest_stages(session, [*runs]), queries.run_leases.leases(session)
    jobs, now = queries.pool.live_jobs(session), queries.tables.database_time(session)
    return {
        name: _state(_Facts(name, run, stages.get(name, []), leases.get(name), flow_runs.get(name), jobs, now))
        for name, run in runs.items()
    }


def stage_at_work(stages: Iterable[StageRow], lease: RunLease | None) -> StageRow | None:
    """The stage that the holder of the run's live lease works on. A stage whose process died stays "running" in the
    ledger until it is claimed again, and is not at work."""
    at_work = [row for row in stages if row.status == "running" and lease is not None and row.owner == lease.owner]
    return at_work[-1] if at_work else None


def _state(facts: _Facts) -> RunState:
    if facts.holder is not None:
        result = _held(facts, facts.holder)
    elif (not_begun := _not_begun(facts)) is not None:
        result = not_begun
    else:
        result = _left(facts)
    stage, flow_run, is_held = result.stage, facts.flow_run, facts.holder is not None
    ends = is_held and flow_run is not None and flow_run.state == "CANCELLING"
    return RunState(
        state=result.state,
        reason=reasons.CANCELLING + result.reason if ends else result.reason,
        since=result.since,
        iteration=stage.iteration if stage else None,
        stage=stage.stage if stage else None,
        active=is_held or (flow_run is not None and flow_run.active),
    )


def _held(facts: _Facts, holder: RunLease) -> _Result:
    """The state of a run that a live process works on."""
    stage, run = stage_at_work(facts.stages, holder), facts.run
    if stage is not None:
        key = (stage.run, stage.iteration, stage.stage)
        job = next((job for job in facts.jobs if (job.run, job.iteration, job.stage) == key), None)
        if job is not None and job.status == "queued":
            return _Result("queued", reasons.waits_for_devices(stage, job, facts.jobs, facts.now), job.since, stage)
        state: State = "queued" if reasons.waits_for_turn(stage) else "running"
        return _Result(state, reasons.at_work(stage), stage.started_at, stage)
    last = facts.stages[-1] if facts.stages else None
    if run is not None and run.status == "paused":
        if facts.flow_run is not None and facts.flow_run.state == "RUNNING":
            return _Result("running", reasons.DECIDED, facts.flow_run.since, last)
        return _Result("paused", reasons.paused(last), run.updated_at, last)
    if run is not None and last is not None and facts.begun_status:
        return _Result("running", reasons.BETWEEN_STAGES, last.finished_at or last.started_at)
    started = facts.flow_run.started if facts.flow_run else None
    return _Result("preparing", reasons.PREPARING, started or (run.updated_at if run else facts.now))


def _not_begun(facts: _Facts) -> _Result | None:
    """The state of a run whose newest flow run has not changed its status; None if the status says more."""
    flow_run, changed = facts.flow_run, facts.run.updated_at if facts.run else None
    if flow_run is None or flow_run.changed_status(changed):
        return None
    if flow_run.state == "SCHEDULED":
        return _Result("waiting", reasons.waiting(flow_run, facts.now), flow_run.since)
    if flow_run.state in ("PENDING", "RUNNING", "PAUSED"):
        if facts.lease is not None and flow_run.since <= facts.lease.expires:  # its process had the run, and died
            reason = reasons.nobody(facts.name, facts.lease.expires, facts.now)
            return _Result("interrupted", reason, facts.lease.expires)
        return _Result("preparing", reasons.begins(flow_run), flow_run.since)
    if flow_run.state in ("FAILED", "CRASHED") and (changed is None or flow_run.since > changed):
        if facts.run is not None and facts.run.status in ENDED:
            result = _left(facts)  # it stays ended
            result = result._replace(reason=f"{result.reason}; {reasons.refused(flow_run)}")
        else:
            result = _Result("failed", reasons.failed_before_it_began(flow_run), flow_run.since)
        return result
    return _Result("cancelled", reasons.cancelled(None, flow_run), flow_run.since) if facts.run is None else None


def _not_ended(facts: _Facts, run: Run) -> _Result:
    stage = facts.unfinished
    if run.status == "created" and not facts.stages and facts.lease is None:
        return _Result("created", reasons.created(run), run.updated_at)
    finished = [row.finished_at for row in facts.stages if row.finished_at is not None]
    left = stage.lease_expires if stage else max([run.updated_at, *finished])
    since = facts.lease.expires if facts.lease else left
    is_suspended = facts.flow_run is not None and facts.flow_run.name == "Suspended"
    reason = reasons.suspended(run.name) if is_suspended else reasons.nobody(run.name, since, facts.now)
    return _Result("interrupted", reason, since, stage)


def _left(facts: _Facts) -> _Result:
    """The state of a stored run that no process works on."""
    run, stage = facts.run, facts.unfinished
    if run is None:
        raise ValueError(f"run {facts.name}: expected a run in the store or a flow run, got neither")
    last = facts.stages[-1] if facts.stages else None
    if run.status in ("created", "running", "paused"):
        return _not_ended(facts, run)
    if run.status == "failed":
        failed = next((row for row in reversed(facts.stages) if row.status == "failed"), None) or stage
        return _Result("failed", reasons.failed(failed, facts.flow_run), run.updated_at, failed)
    if run.status == "cancelled":
        return _Result("cancelled", reasons.cancelled(stage, facts.flow_run), run.updated_at, stage)
    if run.status == "out_of_budget":
        return _Result("out_of_budget", reasons.out_of_budget(run, facts.stages), run.updated_at, last)
    if run.status == "stopped":
        return _Result("stopped", reasons.stopped(facts.stages), run.updated_at, last)
    return _Result("done", reasons.done(run), run.updated_at)
