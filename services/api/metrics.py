"""`GET /metrics` for Prometheus: the store's state at the time of the scrape. docs/alerts.md lists the metrics.

Prometheus' x-axis is time, so only the latest value of each figure is exposed. The values over the iterations are in
the table `series`. Labels have few values: runs, oracles, stages and words of the glossary, but never ids of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import get_args

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from sqlalchemy.orm import Session
from typing_extensions import override

from core.settings.costs import Rates
from core.types import ResourceKind
from services.api.dependencies import InstallationDependency, PrefectDependency, StoreDependency
from services.api.figure_metrics import figures
from services.api.run_views import all_states
from services.api.service_metrics import service_metrics
from services.drift.outbox import ATTEMPTS
from services.prefect.client import Prefect
from services.views.costs import NOTHING, costs_by_stage
from services.views.states import RunState, State
from storage import queries
from storage.queries.metrics import PoolLoad
from storage.rows import PoolStatus, Severity
from storage.session import Store

LARGEST = 50  # runs
# A target that is still configured gets its due alerts far sooner than this.
_ABANDONED_AFTER = timedelta(days=1)
Sample = tuple[Sequence[str], float]  # the values of its labels, and its value

router = APIRouter(tags=["metrics"])


@router.get("/metrics", response_class=PlainTextResponse)
def get_metrics(
    request: Request, store: StoreDependency, prefect: PrefectDependency, installation: InstallationDependency
) -> PlainTextResponse:
    """The state of the runs as Prometheus reads it (text format 0.0.4), of at most 50 runs: those with an open critical
    alert, those that are at work or paused, those that failed or were interrupted within a day, then those that changed
    last."""
    scrape = _Scrape(store, prefect, request.app.state.exports, installation.ray_answers)
    return PlainTextResponse(generate_latest(scrape), media_type=CONTENT_TYPE_PLAIN_0_0_4)


@dataclass(frozen=True)
class _Scrape(Collector):
    """Reads the store, asks Prefect and Ray, and looks at the disk of `folder`."""

    store: Store
    prefect: Prefect
    folder: Path
    ray_answers: Callable[[], bool] | None

    @override
    def collect(self) -> Iterable[Metric]:
        known = self.prefect.newest()
        services = [*service_metrics(self.prefect, known.problem is None, self.folder, self.ray_answers)]
        with self.store.read() as session:  # all metrics are of one state of the store
            runs = queries.metrics.watched_runs(session, LARGEST)
            return [
                *_states(all_states(session, known), runs),
                *_stages(session, runs),
                *figures(queries.metrics.latest_series(session, runs)),
                _counter(
                    "questions",
                    "Questions with this verdict, over all iterations of the run.",
                    (
                        ((run, verdict), count)
                        for run, counts in queries.metrics.verdict_totals(session, runs).items()
                        for verdict, count in counts.items()
                    ),
                    *("run", "verdict"),
                ),
                *_costs(session, runs),
                *_alerts(session, runs),
                *_pool(session),
                *services,
            ]


def _states(states: Mapping[str, RunState], watched: Sequence[str]) -> Iterator[Metric]:
    counts, words = Counter(state.state for state in states.values()), get_args(State)
    yield _gauge(
        "runs",
        f"Runs by state, also those that only Prefect knows. The other metrics cover at most {LARGEST} stored runs.",
        (((word,), counts[word]) for word in words),
        "state",
    )
    samples = (((run, word), states[run].state == word) for run in watched for word in words)
    unshown = len(states.keys() - {*watched})
    yield _gauge("runs_not_shown", "Runs that the other metrics do not cover.", [((), unshown)])
    yield _gauge("run_state", "1 for the state that the run is in, 0 for the others.", samples, "run", "state")


def _stages(session: Session, runs: Sequence[str]) -> Iterator[Metric]:
    yield _gauge(
        "iteration",
        "The last iteration of the run in which every stage is done.",
        (((run,), t) for run, t in queries.metrics.finished_iterations(session, runs).items()),
        "run",
    )
    yield _gauge(
        "stage_duration_seconds",
        "How long the stage took when it was last done. If it had several attempts, that of the last.",
        (((stage.run, stage.stage), stage.seconds) for stage in queries.metrics.last_stages(session, runs)),
        *("run", "stage"),
    )
    yield _gauge(
        "stage_running_seconds",
        "How long the stage that a live process works on has been running, since its last attempt began.",
        (((stage.run, stage.stage), stage.seconds) for stage in queries.metrics.running_stages(session, runs)),
        *("run", "stage"),
    )


def _costs(session: Session, runs: Sequence[str]) -> Iterator[Metric]:
    seconds: list[Sample] = []
    devices: list[Sample] = []
    tokens: list[Sample] = []
    for run in runs:
        rows = costs_by_stage(session, run, Rates())
        total = sum((row.amounts for row in rows), NOTHING)
        seconds.append(((run,), total.seconds))
        devices += [((run, "CPU"), total.cpu_seconds), ((run, "GPU"), total.gpu_seconds)]
        for purpose in sorted({row.purpose for row in rows if row.amounts.requests}):
            of_purpose = sum((row.amounts for row in rows if row.purpose == purpose), NOTHING)
            tokens.append(((run, purpose, "in"), of_purpose.prompt_tokens))
            tokens.append(((run, purpose, "out"), of_purpose.reply_tokens))
    yield _counter("work_seconds", "Time in which stages of the run worked.", seconds, "run")
    text = (
        "CPU-seconds and GPU-seconds that the run has held, for inference while its stages used it, and for training."
    )
    yield _counter("device_seconds", text, devices, "run", "kind")
    text = "Tokens of prompts (in) and replies (out) that the run has stored, by what they were for."
    yield _counter("tokens", text, tokens, "run", "purpose", "direction")


def _alerts(session: Session, runs: Sequence[str]) -> Iterator[Metric]:
    counts = queries.metrics.alert_counts(session, runs)
    severities: tuple[Severity, ...] = get_args(Severity)
    yield _gauge(
        "alerts",
        "Alerts of all iterations of the run.",
        (
            ((run, severity, str(acknowledged).lower()), counts.get((run, severity, acknowledged), 0))
            for run in runs
            for severity in severities
            for acknowledged in (False, True)
        ),
        *("run", "severity", "acknowledged"),
    )
    unacknowledged = queries.metrics.open_alerts(session)
    yield _gauge(
        "open_alerts",
        "Alerts of all runs that nobody has acknowledged, also of runs that the other metrics do not cover.",
        (((severity,), unacknowledged.get(severity, 0)) for severity in severities),
        "severity",
    )
    late = queries.metrics.late_deliveries(session, max_attempts=ATTEMPTS, abandoned_after=_ABANDONED_AFTER)
    text = "Deliveries of alerts that were tried, have not arrived, and are not given up."
    yield _gauge("alert_deliveries_late", text, [((), late)])
    text = f"Deliveries of alerts that have not arrived in {ATTEMPTS} attempts, and are not tried again."
    given_up = queries.metrics.given_up_deliveries(session, max_attempts=ATTEMPTS)
    yield _counter("alert_deliveries_given_up", text, [((), given_up)])


def _pool(session: Session) -> Iterator[Metric]:
    rows = queries.metrics.pool_load(session)
    statuses: tuple[PoolStatus, ...] = get_args(PoolStatus)
    zeros = [PoolLoad(kind, status, 0, 0.0, 0.0, 0.0) for kind in get_args(ResourceKind) for status in statuses]
    load = {(row.status, row.kind): row for row in (*zeros, *rows)}
    jobs = ((key, row.jobs) for key, row in load.items())
    yield _gauge("pool_jobs", "Trainings in the worker pool, including those that are done.", jobs, "status", "kind")
    units = ((key, row.units) for key, row in load.items() if row.status != "done")
    yield _gauge("pool_units", "CPUs or GPUs that trainings have or wait for.", units, "status", "kind")
    waits = (((kind,), load["queued", kind].longest_seconds) for kind in get_args(ResourceKind))
    yield _gauge("pool_wait_seconds", "How long the training that has waited longest has been waiting.", waits, "kind")
    text = "CPU-seconds or GPU-seconds that trainings of the worker pool have used, counted every quarter of a minute."
    kinds = get_args(ResourceKind)
    used = (((kind,), sum(row.used for row in load.values() if row.kind == kind)) for kind in kinds)
    yield _counter("pool_unit_seconds", text, used, "kind")


def _gauge(name: str, text: str, samples: Iterable[Sample], *labels: str) -> Metric:
    return _filled(GaugeMetricFamily(f"coevo_{name}", text, labels=labels), samples)


def _counter(name: str, text: str, samples: Iterable[Sample], *labels: str) -> Metric:
    return _filled(CounterMetricFamily(f"coevo_{name}", text, labels=labels), samples)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: Iterable[Sample]) -> Metric:
    for values, value in samples:
        family.add_metric(values, value)
    return family
