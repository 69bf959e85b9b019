"""What a Prometheus scrape reads: the state of the runs as a whole.

The queries read no table with a row per question or vote. A figure is that of the latest iteration that has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, get_args

from sqlalchemy import ColumnElement, and_, case, exists, func, or_, select
from sqlalchemy.orm import Session

from core.types import ResourceKind, Stage, Verdict
from storage.models import (
    Alerts,
    Deliveries,
    FilterStatistics,
    InheritedIterations,
    PoolJobs,
    RunLeases,
    Runs,
    Series,
    Stages,
)
from storage.queries.tables import columns, database_time
from storage.rows import PoolStatus, SeriesPoint, Severity

_LAST_STAGE: Stage = "check_health"  # of every iteration after 0


@dataclass(frozen=True, slots=True)
class StageClock:
    """How long a stage took, or has been running so far."""

    run: str
    stage: Stage
    seconds: float


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """The worker pool's jobs of one kind and status."""

    kind: ResourceKind
    status: PoolStatus
    jobs: int
    units: float
    used: float  # unit-seconds in total
    longest_seconds: float  # how long the oldest of them has been in this status


def watched_runs(session: Session, limit: int) -> list[str]:
    """The names of at most `limit` runs: first those with an open critical alert, then those that a process works on or
    that wait for a person, then those that failed or were interrupted within a day. Of equals, the one that changed
    last comes first. An interrupted run has the status "running", but no process."""
    now = database_time(session)
    open_critical = exists().where(
        Alerts.run == Runs.name, Alerts.severity == "critical", Alerts.acknowledged_at.is_(None)
    )
    has_process = exists().where(RunLeases.run == Runs.name, RunLeases.expires > now)
    broken = and_(Runs.status.in_(("running", "failed")), Runs.updated_at > now - timedelta(days=1))
    rank = case((open_critical, 0), (or_(has_process, Runs.status == "paused"), 1), (broken, 2), else_=3)
    statement = select(Runs.name).order_by(rank, Runs.updated_at.desc(), Runs.name).limit(limit)
    return [*session.scalars(statement)]


def finished_iterations(session: Session, runs: Sequence[str]) -> dict[str, int]:
    """Run -> the last iteration in which every stage is done, perhaps an inherited one; runs without one are left
    out."""
    done = [Stages.run.in_(runs), Stages.stage == _LAST_STAGE, Stages.status == "done"]
    finished = select(Stages.run, func.max(Stages.iteration)).where(*done).group_by(Stages.run)
    of_fork, last = InheritedIterations.run, func.max(InheritedIterations.iteration)
    inherited = select(of_fork, last).where(of_fork.in_(runs)).group_by(of_fork)
    return {run: t for statement in (inherited, finished) for run, t in session.execute(statement) if t}


def latest_series(session: Session, runs: Sequence[str]) -> dict[str, list[SeriesPoint]]:
    """Run -> for each of its series the latest measured point and the latest estimate, by name, over and oracle."""
    key = (Series.run, Series.name, Series.over, Series.oracle, Series.estimated)
    latest = select(*key, func.max(Series.iteration).label("iteration"))
    latest_of_each = latest.where(Series.run.in_(runs)).group_by(*key).subquery()
    same = [column == latest_of_each.c[column.key] for column in (*key, Series.iteration)]
    statement = select(Series.run, *columns(Series, SeriesPoint)).join(latest_of_each, and_(*same))
    points: dict[str, list[SeriesPoint]] = {}
    for run, *values in session.execute(statement.order_by(*key)):
        points.setdefault(run, []).append(SeriesPoint(*values))
    return points


def verdict_totals(session: Session, runs: Sequence[str]) -> dict[str, dict[Verdict, int]]:
    """Run -> verdict -> number of questions with this verdict, over all iterations."""
    verdicts: tuple[Verdict, ...] = get_args(Verdict)
    sums = [func.sum(getattr(FilterStatistics, verdict)) for verdict in verdicts]
    rows: Iterable[Any] = session.execute(
        select(FilterStatistics.run, *sums).where(FilterStatistics.run.in_(runs)).group_by(FilterStatistics.run)
    )
    return {run: dict(zip(verdicts, map(int, counts), strict=True)) for run, *counts in rows}


def last_stages(session: Session, runs: Sequence[str]) -> list[StageClock]:
    """How long each stage took in the latest iteration in which it is done; of several attempts, the last."""
    done = [Stages.run.in_(runs), Stages.status == "done"]
    latest = select(Stages.run, Stages.stage, func.max(Stages.iteration).label("iteration")).where(*done)
    newest = latest.group_by(Stages.run, Stages.stage).subquery()
    same = (Stages.run == newest.c.run) & (Stages.stage == newest.c.stage) & (Stages.iteration == newest.c.iteration)
    statement = select(Stages.run, Stages.stage, Stages.started_at, Stages.finished_at).join(newest, same)
    rows: Iterable[Any] = session.execute(statement.order_by(Stages.run, Stages.stage))
    return [
        StageClock(run, stage, (finished - started).total_seconds())
        for run, stage, started, finished in rows
        if finished is not None
    ]


def running_stages(session: Session, runs: Sequence[str]) -> list[StageClock]:
    """The stages that a live process works on."""
    now = database_time(session)
    alive = [Stages.run.in_(runs), Stages.status == "running", Stages.lease_expires > now]
    statement = select(Stages.run, Stages.stage, Stages.started_at).where(*alive).order_by(Stages.run, Stages.stage)
    rows: Iterable[Any] = session.execute(statement)
    return [StageClock(run, stage, _seconds_since(started, now)) for run, stage, started in rows]


def alert_counts(session: Session, runs: Sequence[str]) -> dict[tuple[str, Severity, bool], int]:
    """(run, severity, whether it was acknowledged) -> number of alerts; combinations without alerts are left out."""
    acknowledged = Alerts.acknowledged_at.is_not(None)
    key = (Alerts.run, Alerts.severity, acknowledged)
    rows: Iterable[Any] = session.execute(select(*key, func.count()).where(Alerts.run.in_(runs)).group_by(*key))
    return {(run, severity, bool(is_acknowledged)): count for run, severity, is_acknowledged, count in rows}


def open_alerts(session: Session) -> dict[Severity, int]:
    """Severity -> the alerts of all runs that nobody has acknowledged."""
    is_open = select(Alerts.severity, func.count()).where(Alerts.acknowledged_at.is_(None))
    rows: Iterable[Any] = session.execute(is_open.group_by(Alerts.severity))
    return dict(map(tuple, rows))


def late_deliveries(session: Session, *, max_attempts: int, abandoned_after: timedelta) -> int:
    """The number of deliveries that were tried, have not arrived, and are not given up (`given_up_deliveries`).

    A delivery is not counted if it has been due for longer than `abandoned_after` without another attempt: no process
    sends to its target any more.
    """
    now = database_time(session)
    late = [Deliveries.attempts > 0, ~_given_up(max_attempts, now), Deliveries.next_at > now - abandoned_after]
    return _undelivered(session, *late)


def given_up_deliveries(session: Session, *, max_attempts: int) -> int:
    """The number of deliveries that have not arrived in `max_attempts` attempts. A delivery is counted once its last
    attempt must be over, so the count falls only when a run is deleted with its alerts."""
    return _undelivered(session, _given_up(max_attempts, database_time(session)))


def _given_up(max_attempts: int, now: datetime) -> ColumnElement[bool]:
    """Each attempt, even the last, first postpones `next_at` by more time than the attempt may take."""
    return and_(Deliveries.attempts >= max_attempts, Deliveries.next_at <= now)


def _undelivered(session: Session, *conditions: ColumnElement[bool]) -> int:
    statement = select(func.count()).select_from(Deliveries).where(Deliveries.delivered_at.is_(None), *conditions)
    return session.scalar(statement) or 0


def pool_load(session: Session) -> list[PoolLoad]:
    """The worker pool's jobs by kind and status."""
    now = database_time(session)
    key = (PoolJobs.kind, PoolJobs.status)
    sums = (func.count(), func.sum(PoolJobs.units), func.sum(PoolJobs.used), func.min(PoolJobs.since))
    rows: Iterable[Any] = session.execute(select(*key, *sums).group_by(*key).order_by(*key))
    return [
        PoolLoad(kind, status, jobs, units, used, _seconds_since(since, now))
        for kind, status, jobs, units, used, since in rows
    ]


def _seconds_since(then: datetime, now: datetime) -> float:
    """Never negative, although the clock of another machine may be slightly ahead."""
    return max(0.0, (now - then).total_seconds())
