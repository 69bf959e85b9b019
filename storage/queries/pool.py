"""The worker pool's queue. A job belongs to a stage, and lives as long as its owner holds that stage in the ledger."""

from __future__ import annotations

from sqlalchemy import and_, exists, not_, select, text, update
from sqlalchemy.orm import Session

from core.types import Stage
from storage.models import PoolJobs, Stages
from storage.queries.tables import columns, database_time, insert_into, is_postgresql, table_of
from storage.rows import PoolRow

_WAITS_OR_RUNS = PoolJobs.status.in_(("queued", "running"))


def lock_pool(session: Session) -> None:
    """Let one process at a time decide, until its transaction ends; on SQLite every writing transaction does."""
    if is_postgresql(session):
        session.execute(text(f"LOCK TABLE {PoolJobs.__tablename__} IN SHARE ROW EXCLUSIVE MODE"))


def join_pool(
    session: Session, *, run: str, iteration: int, stage: Stage, owner: str, kind: str, units: float, priority: int
) -> None:
    """Queue, at the end. A job that was there before keeps what it has used, by whoever it was."""
    now = database_time(session)
    key = (PoolJobs.run == run, PoolJobs.iteration == iteration, PoolJobs.stage == stage)
    for before in session.execute(select(*columns(PoolJobs, PoolRow)).where(*key, _WAITS_OR_RUNS)).all():
        _set_done(session, PoolRow(*before))
    wish = {"owner": owner, "kind": kind, "units": units, "priority": priority}
    fresh = {**wish, "status": "queued", "since": now, "preempted": False}
    queue = insert_into(session, PoolJobs).values(run=run, iteration=iteration, stage=stage, used=0.0, **fresh)
    session.execute(queue.on_conflict_do_update(index_elements=["run", "iteration", "stage"], set_=fresh))


def pool_jobs(session: Session) -> list[PoolRow]:
    """All jobs that the pool knows, those that are done included, who has been there longest first."""
    return [PoolRow(*row) for row in session.execute(select(*columns(PoolJobs, PoolRow)).order_by(PoolJobs.since))]


def start_job(session: Session, job: PoolRow) -> None:
    """From now on it has its units."""
    _set(session, job, status="running", since=database_time(session))


def preempt_job(session: Session, job: PoolRow) -> None:
    """It is to give its units up at its next checkpoint."""
    _set(session, job, preempted=True)


def leave_pool(session: Session, *, run: str, iteration: int, stage: Stage, owner: str) -> None:
    """Give the units back; nothing happens where somebody else has taken the stage over."""
    key = (PoolJobs.run == run, PoolJobs.iteration == iteration, PoolJobs.stage == stage, PoolJobs.owner == owner)
    row = session.execute(select(*columns(PoolJobs, PoolRow)).where(*key, _WAITS_OR_RUNS)).one_or_none()
    if row is not None:
        _set_done(session, PoolRow(*row))


def drop_abandoned(session: Session) -> None:
    """End the jobs whose owners no longer hold their stage: they died, or failed, and nobody waits for them."""
    held = exists().where(
        Stages.run == PoolJobs.run,
        Stages.iteration == PoolJobs.iteration,
        Stages.stage == PoolJobs.stage,
        Stages.owner == PoolJobs.owner,
        Stages.status == "running",
        Stages.lease_expires > database_time(session),
    )
    abandoned = select(*columns(PoolJobs, PoolRow)).where(_WAITS_OR_RUNS, not_(held))
    for row in session.execute(abandoned).all():
        _set_done(session, PoolRow(*row))


def _set_done(session: Session, job: PoolRow) -> None:
    now = database_time(session)
    more = (now - job.since).total_seconds() * job.units if job.status == "running" else 0.0
    _set(session, job, status="done", since=now, preempted=False, used=job.used + more)


def _set(session: Session, job: PoolRow, **values: object) -> None:
    key = and_(PoolJobs.run == job.run, PoolJobs.iteration == job.iteration, PoolJobs.stage == job.stage)
    session.execute(update(table_of(PoolJobs)).where(key).values(**values))
