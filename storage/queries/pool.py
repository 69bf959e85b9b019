"""The worker pool's queue. A job belongs to a stage, and ends when its owner loses the stage in the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, func, not_, select, text, update
from sqlalchemy.orm import Session

from core.types import Stage
from storage.models import PoolJobs, Stages
from storage.queries.tables import columns, database_time, find_row, find_rows, insert_into, is_postgresql, table_of
from storage.rows import PoolRow

_WAITS_OR_RUNS = PoolJobs.status.in_(("queued", "running"))


def lock_pool(session: Session) -> None:
    """Lock the queue until the transaction ends. On SQLite every writing transaction has locked it already."""
    if is_postgresql(session):
        session.execute(text(f"LOCK TABLE {PoolJobs.__tablename__} IN SHARE ROW EXCLUSIVE MODE"))


def join_pool(session: Session, *, run: str, iteration: int, stage: Stage, owner: str, kind: str, units: float) -> None:
    """Add a job to the end of the queue. If the stage had a job before, of any owner, its `used` is kept."""
    charge_job(session, run=run, iteration=iteration, stage=stage, owner=owner)
    now = database_time(session)
    key = (PoolJobs.run == run, PoolJobs.iteration == iteration, PoolJobs.stage == stage)
    for previous in find_rows(session, PoolJobs, PoolRow, *key, _WAITS_OR_RUNS):
        _end_job(session, previous)
    requested = {"owner": owner, "kind": kind, "units": units}
    job = {**requested, "status": "queued", "since": now, "charged": None}
    queue = insert_into(session, PoolJobs).values(run=run, iteration=iteration, stage=stage, used=0.0, **job)
    session.execute(queue.on_conflict_do_update(index_elements=["run", "iteration", "stage"], set_=job))


def pool_jobs(session: Session, run: str | None = None) -> list[PoolRow]:
    """All jobs, or those of a run, including those that are done. The job that has been in its status for the longest
    time comes first."""
    of_run = [] if run is None else [PoolJobs.run == run]
    return find_rows(session, PoolJobs, PoolRow, *of_run, order=[PoolJobs.since])


def unfinished_jobs(session: Session) -> list[PoolRow]:
    """The jobs that wait or run, in the order of `pool_jobs`, whether or not their owners hold their stages."""
    return find_rows(session, PoolJobs, PoolRow, _WAITS_OR_RUNS, order=[PoolJobs.since])


def job_of(session: Session, *, run: str, iteration: int, stage: Stage) -> PoolRow:
    """The job of a stage, which has joined the pool."""
    key = (PoolJobs.run == run, PoolJobs.iteration == iteration, PoolJobs.stage == stage)
    return PoolRow(*session.execute(select(*columns(PoolJobs, PoolRow)).where(*key)).one())


def used_by_run(session: Session) -> dict[str, float]:
    """Run -> the unit-seconds of all its jobs."""
    rows: Iterable[Any] = session.execute(select(PoolJobs.run, func.sum(PoolJobs.used)).group_by(PoolJobs.run))
    return dict(map(tuple, rows))


def live_jobs(session: Session) -> list[PoolRow]:
    """The jobs that wait or run and whose owners hold their stages, in the order of `pool_jobs`."""
    return find_rows(session, PoolJobs, PoolRow, _WAITS_OR_RUNS, _owner_holds_stage(session), order=[PoolJobs.since])


def start_job(session: Session, job: PoolRow) -> None:
    """Mark a job as running: it has its units from now on."""
    now = database_time(session)
    _update(session, job, status="running", since=now, charged=now)


def charge_job(session: Session, *, run: str, iteration: int, stage: Stage, owner: str) -> None:
    """Add the time since the last call to what a running job has used. Does nothing if it is not this owner's.

    It is called every few seconds, so that the time between the death of a process and the end of its job is not
    counted.
    """
    key = (PoolJobs.run == run, PoolJobs.iteration == iteration, PoolJobs.stage == stage, PoolJobs.owner == owner)
    job, now = find_row(session, PoolJobs, PoolRow, *key), database_time(session)
    if job is not None and job.charged is not None:
        used = job.used + (now - job.charged).total_seconds() * job.units
        _update(session, job, charged=now, used=used)


def leave_pool(session: Session, *, run: str, iteration: int, stage: Stage, owner: str) -> None:
    """Give the units back. Does nothing if another owner has taken over the stage."""
    charge_job(session, run=run, iteration=iteration, stage=stage, owner=owner)
    key = (PoolJobs.run == run, PoolJobs.iteration == iteration, PoolJobs.stage == stage, PoolJobs.owner == owner)
    for job in find_rows(session, PoolJobs, PoolRow, *key, _WAITS_OR_RUNS):
        _end_job(session, job)


def drop_abandoned(session: Session) -> None:
    """End the jobs whose owners no longer hold their stage, because they died or failed."""
    for job in find_rows(session, PoolJobs, PoolRow, _WAITS_OR_RUNS, not_(_owner_holds_stage(session))):
        _end_job(session, job)


def _owner_holds_stage(session: Session) -> ColumnElement[bool]:
    return exists().where(
        Stages.run == PoolJobs.run,
        Stages.iteration == PoolJobs.iteration,
        Stages.stage == PoolJobs.stage,
        Stages.owner == PoolJobs.owner,
        Stages.status == "running",
        Stages.lease_expires > database_time(session),
    )


def _end_job(session: Session, job: PoolRow) -> None:
    _update(session, job, status="done", since=database_time(session), charged=None)


def _update(session: Session, job: PoolRow, **values: object) -> None:
    key = and_(PoolJobs.run == job.run, PoolJobs.iteration == job.iteration, PoolJobs.stage == job.stage)
    session.execute(update(table_of(PoolJobs)).where(key).values(**values))
