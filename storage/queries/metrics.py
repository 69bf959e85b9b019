"""What a scrape of Prometheus asks for: the state of the runs as a whole, from tables that have a row an iteration or a
stage, never one a question. Iterations are the latest that have the figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast, get_args

from sqlalchemy import ColumnElement, and_, case, func, select
from sqlalchemy.orm import Session

from core.types import ResourceKind, Stage, Verdict
from storage.models import Alerts, Deliveries, FilterStatistics, PoolJobs, Runs, Series, Stages
from storage.queries.tables import columns, database_time
from storage.rows import PoolStatus, RunStatus, SeriesPoint, Severity

_UNDER_WAY: tuple[RunStatus, ...] = ("running", "paused")
_LAST_STAGE: Stage = "check_health"  # of every iteration after 0


@dataclass(frozen=True, slots=True)
class StageClock:
    """How long a stage took, or has been at it; seconds."""

    run: str
    stage: Stage
    seconds: float
    lease_seconds: float | None  # until its lease ends, negative when that ran out; None: the stage is done


@dataclass(frozen=True, slots=True)
class PoolLoad:
    """The worker pool's jobs of one kind and status."""

    kind: ResourceKind
    status: PoolStatus
    jobs: int
    units: float
    used: float  # unit-seconds, in all
    longest_seconds: float  # how long the oldest of them has been in this status


def watched_runs(session: Session, limit: int) -> tuple[int, list[tuple[str, RunStatus]]]:
    """How many runs there are, and of at most `limit` the name and status: those under way, then the last changed."""
    later = case((Runs.status.in_(_UNDER_WAY), 0), else_=1)
    statement = select(Runs.name, Runs.status).order_by(later, Runs.updated_at.desc(), Runs.name).limit(limit)
    named = [(name, cast(RunStatus, status)) for name, status in session.execute(statement)]
    return session.scalar(select(func.count()).select_from(Runs)) or 0, named


def finished_iterations(session: Session, runs: Sequence[str]) -> dict[str, int]:
    """Run -> the last iteration whose every stage is done; a run without one is not there."""
    done = [Stages.run.in_(runs), Stages.stage == _LAST_STAGE, Stages.status == "done"]
    statement = select(Stages.run, func.max(Stages.iteration)).where(*done).group_by(Stages.run)
    rows: Iterable[Any] = session.execute(statement)
    return dict(map(tuple, rows))


def latest_series(session: Session, runs: Sequence[str]) -> dict[str, list[SeriesPoint]]:
    """Run -> the latest point of each of its series, by name, over and oracle; where the latest is an estimate, the
    latest that was measured too."""
    key = (Series.run, Series.name, Series.over, Series.oracle, Series.estimated)
    latest = select(*key, func.max(Series.iteration).label("iteration"))
    of_each = latest.where(Series.run.in_(runs)).group_by(*key).subquery()
    same = [column == of_each.c[column.key] for column in (*key, Series.iteration)]
    statement = select(Series.run, *columns(Series, SeriesPoint)).join(of_each, and_(*same))
    points: dict[str, list[SeriesPoint]] = {}
    for run, *values in session.execute(statement.order_by(*key)):
        points.setdefault(run, []).append(SeriesPoint(*values))
    return points


def verdict_totals(session: Session, runs: Sequence[str]) -> dict[str, dict[Verdict, int]]:
    """Run -> verdict -> how many questions of all its iterations got it."""
    verdicts: tuple[Verdict, ...] = get_args(Verdict)
    sums = [func.sum(getattr(FilterStatistics, verdict)) for verdict in verdicts]
    rows: Iterable[Any] = session.execute(
        select(FilterStatistics.run, *sums).where(FilterStatistics.run.in_(runs)).group_by(FilterStatistics.run)
    )
    return {run: dict(zip(verdicts, map(int, counts), strict=True)) for run, *counts in rows}


def last_stages(session: Session, runs: Sequence[str]) -> list[StageClock]:
    """How long each stage took when it was last done: its last attempt's time."""
    done = [Stages.run.in_(runs), Stages.status == "done"]
    latest = select(Stages.run, Stages.stage, func.max(Stages.iteration).label("iteration")).where(*done)
    of_each = latest.group_by(Stages.run, Stages.stage).subquery()
    same = (Stages.run == of_each.c.run) & (Stages.stage == of_each.c.stage) & (Stages.iteration == of_each.c.iteration)
    statement = select(Stages.run, Stages.stage, Stages.started_at, Stages.finished_at).join(of_each, same)
    rows: Iterable[Any] = session.execute(statement.order_by(Stages.run, Stages.stage))
    return [
        StageClock(run, stage, (finished - started).total_seconds(), None)
        for run, stage, started, finished in rows
        if finished is not None
    ]


def stages_under_way(session: Session, runs: Sequence[str]) -> list[StageClock]:
    """The stages that the ledger takes for running; whose process died, they are until somebody claims them."""
    now = database_time(session)
    statement = select(Stages.run, Stages.stage, Stages.started_at, Stages.lease_expires)
    running = statement.where(Stages.run.in_(runs), Stages.status == "running")
    rows: Iterable[Any] = session.execute(running.order_by(Stages.run, Stages.stage))
    return [
        StageClock(run, stage, _since(started, now), (expires - now).total_seconds())
        for run, stage, started, expires in rows
    ]


def alert_counts(session: Session, runs: Sequence[str]) -> dict[tuple[str, Severity, bool], int]:
    """(run, severity, whether it was acknowledged) -> alerts; what there is none of is not there."""
    acknowledged = Alerts.acknowledged_at.is_not(None)
    key = (Alerts.run, Alerts.severity, acknowledged)
    rows: Iterable[Any] = session.execute(select(*key, func.count()).where(Alerts.run.in_(runs)).group_by(*key))
    return {(run, severity, bool(known)): count for run, severity, known, count in rows}


def late_deliveries(session: Session, *, most: int, forgotten: timedelta) -> int:
    """Deliveries of alerts that were tried, have not arrived, and are not given up (`given_up_deliveries`).

    Nor one that nobody has tried for `forgotten` since it was due: whoever sends to its target would have.
    """
    now = database_time(session)
    late = [Deliveries.attempts > 0, ~_given_up(most, now), Deliveries.next_at > now - forgotten]
    return _undelivered(session, *late)


def given_up_deliveries(session: Session, *, most: int) -> int:
    """Deliveries of alerts that have not arrived in `most` attempts, counted once the last of them must be over: so
    the count falls only with the alerts of a run that is deleted."""
    return _undelivered(session, _given_up(most, database_time(session)))


def _given_up(most: int, now: datetime) -> ColumnElement[bool]:
    """Whoever begins an attempt puts the next one off by longer than it may take, the last attempt too."""
    return and_(Deliveries.attempts >= most, Deliveries.next_at <= now)


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
        PoolLoad(kind, status, jobs, units, used, _since(since, now)) for kind, status, jobs, units, used, since in rows
    ]


def _since(then: datetime, now: datetime) -> float:
    """Seconds; another machine's clock may be a little ahead."""
    return max(0.0, (now - then).total_seconds())
