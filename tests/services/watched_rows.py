"""Rows of a run that Prometheus watches: series, stages at work and cut off, alerts, a delivery, a waiting training."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from api_examples import RUN

from core.questions.filtering import FilterStats
from storage import queries
from storage.models import Alerts, Deliveries, Series, Stages
from storage.queries.tables import insert_new
from storage.rows import SeriesPoint
from storage.session import Store

NOW = datetime.now(UTC)


def add_watched_rows(store: Store, run: str = RUN) -> None:
    """Add series of two iterations, a stage that runs and one that was cut off, alerts, and a training that waits for
    the pool."""
    points = [
        SeriesPoint(1, "label_accuracy", "kept", "exact", 0.8, 0.7, 0.87, 100),
        SeriesPoint(2, "label_accuracy", "kept", "exact", 0.5, 0.4, 0.6, 96),
        SeriesPoint(2, "label_accuracy", "all", "exact", 0.6, 0.55, 0.65, 400),
        SeriesPoint(2, "label_accuracy", "all", "judge", 0.7, 0.6, 0.8, 400, estimated=True),
        SeriesPoint(1, "vote_entropy", "all", "", 0.9, None, None, 400),
        SeriesPoint(2, "duplicate_share", "all", "", 0.25, 0.2, 0.3, 400),
        SeriesPoint(2, "solver_0_on_1", "", "", 0.3, None, None, 10),
    ]
    with store.write() as session:
        insert_new(session, Series, [{"run": run, **_fields(point)} for point in points])
        stats = FilterStats(10, 5, 1, 2, 0, 0, 1, 1, 0.5, 0.0, 0)
        queries.figures.add_filter_stats(session, run=run, iteration=2, stats=stats)
        insert_new(session, Stages, [_stage(run, t, 90 * t, "check_health") for t in (1, 2)])
        insert_new(session, Stages, [_stage(run, 3, None, "train_solver", NOW + timedelta(hours=1))])
        insert_new(session, Stages, [_stage(run, 3, None, "evaluate")])
        queries.runs.set_run_status(session, run, "running")
        insert_new(session, Alerts, [_alert(run, f"{run}-{i}", NOW if i else None) for i in range(3)])
        late = {"alert": f"{run}-0", "next_at": NOW, "delivered_at": None, "error": "refused"}
        insert_new(session, Deliveries, [{**late, "target": name, "attempts": n} for name, n in (("a", 2), ("b", 0))])
        queries.pool.join_pool(session, run=run, iteration=3, stage="train_solver", owner="me", kind="GPU", units=2.0)


def _fields(point: SeriesPoint) -> dict[str, Any]:
    return {name: getattr(point, name) for name in SeriesPoint.__dataclass_fields__}


def _stage(
    run: str, iteration: int, seconds: float | None, stage: str, lease: datetime = NOW - timedelta(minutes=20)
) -> dict[str, Any]:
    began = NOW - timedelta(hours=1)
    ended = None if seconds is None else began + timedelta(seconds=seconds)
    status = "running" if ended is None else "done"
    key = {"run": run, "iteration": iteration, "stage": stage, "status": status, "owner": "me", "attempt": 1}
    times = {"started_at": began, "finished_at": ended, "lease_expires": lease}
    return {**key, **times, "result": None, "error": None}


def _alert(run: str, key: str, acknowledged: datetime | None) -> dict[str, Any]:
    identity = {"rule": "drop", "series": "label_accuracy", "over": "kept", "oracle": "exact", "severity": "critical"}
    figures = {"value": 0.5, "lo": None, "hi": None, "n": 96, "reference": 0.8, "threshold": None}
    notice = {"text": "it fell", "raised_at": NOW, "acknowledged_by": None, "note": ""}
    return {"id": key, "run": run, "iteration": 2, "acknowledged_at": acknowledged, **identity, **figures, **notice}
