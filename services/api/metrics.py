"""`GET /metrics` for Prometheus: the store's state at the time of the scrape. docs/metrics.md lists the metrics.

Prometheus' x-axis is time, so of an iteration's figures there are the latest; their course over the iterations is in
the table `series`. Labels are bounded: runs, oracles, stages and words of the glossary, never an id of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import get_args

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from sqlalchemy.orm import Session

from core.types import ResourceKind
from services.api.figure_metrics import figures
from services.drift.outbox import ATTEMPTS
from storage import queries
from storage.queries.metrics import PoolLoad
from storage.rows import PoolStatus, RunStatus, Severity
from storage.session import Store

LARGEST = 50  # runs
_FORGOTTEN = timedelta(days=1)  # a queue of alerts that are due is done far sooner

router = APIRouter(tags=["metrics"])


@router.get("/metrics", response_class=PlainTextResponse)
def get_metrics(request: Request) -> PlainTextResponse:
    """The state of the runs as Prometheus reads it (text format 0.0.4), of at most 50 runs: those that are running or
    paused, then those that changed last."""
    registry: CollectorRegistry = request.app.state.metrics
    return PlainTextResponse(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def registry_of(store: Store) -> CollectorRegistry:
    """A registry that asks the store at each scrape, and has nothing else in it."""
    registry = CollectorRegistry()
    registry.register(_StoreCollector(store))
    return registry


class _StoreCollector(Collector):
    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterable[Metric]:
        with self._store.read() as session:  # one state of the store
            count, watched = queries.metrics.watched_runs(session, LARGEST)
            runs = [name for name, _ in watched]
            return [
                _gauge("runs", f"Runs in the store; metrics are of at most {LARGEST} of them.", [((), count)]),
                _statuses(watched),
                *_stages(session, runs),
                *figures(queries.metrics.latest_series(session, runs)),
                _questions(session, runs),
                *_alerts(session, runs),
                *_pool(session),
            ]


def _statuses(runs: Sequence[tuple[str, RunStatus]]) -> Metric:
    known: tuple[RunStatus, ...] = get_args(RunStatus)
    samples = (((name, status), status == now) for name, now in runs for status in known)
    return _gauge("run_status", "1 for the status that the run has, 0 for the others.", samples, "run", "status")


def _stages(session: Session, runs: Sequence[str]) -> Iterator[Metric]:
    yield _gauge(
        "iteration",
        "The last iteration of the run whose every stage is done.",
        (((run,), t) for run, t in queries.metrics.finished_iterations(session, runs).items()),
        "run",
    )
    yield _gauge(
        "stage_duration_seconds",
        "How long the stage took when it was last done; where it was done again after a crash, its last attempt.",
        (((stage.run, stage.stage), stage.seconds) for stage in queries.metrics.last_stages(session, runs)),
        *("run", "stage"),
    )
    running = queries.metrics.stages_under_way(session, runs)
    yield _gauge(
        "stage_running_seconds",
        "How long the stage has been running, since its last attempt began; by the ledger, whose word a dead process "
        "leaves standing: see coevo_stage_lease_seconds.",
        (((stage.run, stage.stage), stage.seconds) for stage in running),
        *("run", "stage"),
    )
    yield _gauge(
        "stage_lease_seconds",
        "How long until the lease of a running stage ends; a live process renews it. Negative: it ran out so long ago.",
        (((stage.run, stage.stage), stage.lease_seconds) for stage in running if stage.lease_seconds is not None),
        *("run", "stage"),
    )


def _questions(session: Session, runs: Sequence[str]) -> Metric:
    family = CounterMetricFamily(
        "coevo_questions",
        "Questions that got a verdict, of all iterations of the run.",
        labels=("run", "verdict"),
    )
    for run, counts in queries.metrics.verdict_totals(session, runs).items():
        for verdict, count in counts.items():
            family.add_metric((run, verdict), count)
    return family


def _alerts(session: Session, runs: Sequence[str]) -> Iterator[Metric]:
    counts = queries.metrics.alert_counts(session, runs)
    severities: tuple[Severity, ...] = get_args(Severity)
    yield _gauge(
        "alerts",
        "Alerts of all iterations of the run.",
        (
            ((run, severity, str(known).lower()), counts.get((run, severity, known), 0))
            for run in runs
            for severity in severities
            for known in (False, True)
        ),
        *("run", "severity", "acknowledged"),
    )
    late = queries.metrics.late_deliveries(session, most=ATTEMPTS, forgotten=_FORGOTTEN)
    text = "Deliveries of alerts that were tried, have not arrived, and are not given up."
    yield _gauge("alert_deliveries_late", text, [((), late)])
    yield CounterMetricFamily(
        "coevo_alert_deliveries_given_up",
        f"Deliveries of alerts that have not arrived in {ATTEMPTS} attempts, and are not tried again.",
        queries.metrics.given_up_deliveries(session, most=ATTEMPTS),
    )


def _pool(session: Session) -> Iterator[Metric]:
    rows = queries.metrics.pool_load(session)
    statuses: tuple[PoolStatus, ...] = get_args(PoolStatus)
    none = [PoolLoad(kind, status, 0, 0.0, 0.0, 0.0) for kind in get_args(ResourceKind) for status in statuses]
    load = {(row.status, row.kind): row for row in (*none, *rows)}
    jobs = ((key, row.jobs) for key, row in load.items())
    yield _gauge("pool_jobs", "Trainings that the worker pool knows.", jobs, "status", "kind")
    asked = ((key, row.units) for key, row in load.items() if row.status != "done")
    yield _gauge("pool_units", "CPUs or GPUs that trainings have, or wait for.", asked, "status", "kind")
    waits = (((kind,), load["queued", kind].longest_seconds) for kind in get_args(ResourceKind))
    yield _gauge("pool_wait_seconds", "How long the training that waits longest has waited.", waits, "kind")
    used = CounterMetricFamily(
        "coevo_pool_unit_seconds",
        "CPU-seconds or GPU-seconds that trainings of the worker pool have used; counted when they give them back.",
        labels=("kind",),
    )
    for kind in get_args(ResourceKind):
        used.add_metric((kind,), sum(row.used for row in load.values() if row.kind == kind))
    yield used


def _gauge(name: str, text: str, samples: Iterable[tuple[Sequence[str], float]], *labels: str) -> Metric:
    family = GaugeMetricFamily(f"coevo_{name}", text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family
