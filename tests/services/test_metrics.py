"""`GET /metrics` on real databases, read with Prometheus' own parser."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import pytest
from api_examples import RUN, fill
from fastapi.testclient import TestClient
from local_api import local_api
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine, event, update
from watched_rows import NOW, _alert, add_watched_rows

from core.figures import FIGURES
from core.settings.config import CoEvolution
from core.settings.costs import Rates
from orchestrator.installation.home import ROOT
from services.api.access.keys import new_key
from services.api.app import create_app
from services.api.metrics import LARGEST
from services.drift.outbox import ATTEMPTS
from services.drift.series import points_of
from services.prefect.server import PrefectServer
from services.views.costs import costs_by_stage
from services.views.states import MEANINGS
from storage import queries
from storage.models import Alerts, Deliveries, Runs
from storage.queries.tables import insert_new, table_of
from storage.rows import SeriesPoint
from storage.session import Store

SCRAPED = {"runs", "inherited_iterations", "run_leases", "stages", "series", "filter_stats", "alerts"}
SCRAPED |= {"deliveries", "pool_jobs", "usage"}
SILENT = PrefectServer("http://127.0.0.1:9")  # no server answers at this address
Metrics = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def api(store: Store, tmp_path: Path) -> TestClient:
    fill(store)
    add_watched_rows(store)
    return local_api(store, tmp_path, prefect=SILENT)


def scrape(api: TestClient, **headers: str) -> str:
    response = api.get("/metrics", headers=headers)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return response.text


def metrics_of(api: TestClient) -> Metrics:
    families = list(text_string_to_metric_families(scrape(api)))
    assert all(family.documentation and family.type in ("gauge", "counter") for family in families)
    samples = [sample for family in families for sample in family.samples]
    by_name = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(by_name) == len(samples)
    return by_name


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics[name, frozenset(labels.items())]


def test_each_figure_is_that_of_the_latest_iteration_of_its_series(api: TestClient) -> None:
    metrics = metrics_of(api)
    for name, oracle, over, expected in (
        ("pseudo_label_accuracy_ratio", "exact", "kept", 0.5),
        ("pseudo_label_accuracy_ci_lower_ratio", "exact", "kept", 0.4),
        ("pseudo_label_accuracy_ci_upper_ratio", "exact", "kept", 0.6),
        ("pseudo_label_accuracy_audited", "exact", "kept", 96),
        ("pseudo_label_accuracy_estimated_ratio", "judge", "all", 0.7),
        ("pseudo_label_accuracy_ratio", "judge", "all", None),
        ("vote_entropy_nats", "", "all", 0.9),
        ("vote_entropy_ci_lower_nats", "", "all", None),
        ("duplicate_ratio", "", "all", 0.25),
        ("duplicate_n", "", "all", 400),
    ):
        labels = {"run": RUN, "oracle": oracle, "slice": over}
        assert metrics.get((f"coevo_{name}", frozenset(labels.items()))) == expected, (name, labels)
    assert iterations_in(metrics, "pseudo_label_accuracy") == {("exact", "kept"): 2, ("exact", "all"): 2}
    assert iterations_in(metrics, "vote_entropy") == {("", "all"): 1}
    assert not any("solver_0" in name for name, _ in metrics)


def iterations_in(metrics: Metrics, figure: str) -> dict[tuple[str, str], float]:
    """(oracle, slice) -> the iteration that the figure's metric is of."""
    found = [(dict(labels), of) for (name, labels), of in metrics.items() if name == "coevo_figure_iteration"]
    return {(labels["oracle"], labels["slice"]): of for labels, of in found if labels["figure"] == figure}


def test_a_measured_figure_stays_when_later_iterations_are_estimated_or_have_another_oracle(
    store: Store, tmp_path: Path
) -> None:
    points = [
        SeriesPoint(1, "label_accuracy", "kept", "exact", 0.8, 0.7, 0.87, 100),
        SeriesPoint(2, "label_accuracy", "kept", "exact", 0.6, 0.5, 0.7, 400, estimated=True),
        SeriesPoint(3, "label_accuracy", "kept", "judge", 0.75, 0.7, 0.8, 200),
    ]
    with store.write() as session:
        queries.runs.create_run(session, name=RUN, config=CoEvolution())
        queries.series.put_series(session, RUN, points)
    metrics = metrics_of(local_api(store, tmp_path))
    for name, oracle, expected in (
        ("ratio", "exact", 0.8),
        ("audited", "exact", 100),
        ("estimated_ratio", "exact", 0.6),
        ("ratio", "judge", 0.75),
    ):
        assert value(metrics, f"coevo_pseudo_label_accuracy_{name}", run=RUN, oracle=oracle, slice="kept") == expected
    assert iterations_in(metrics, "pseudo_label_accuracy") == {("exact", "kept"): 1, ("judge", "kept"): 3}


def test_a_delivery_is_late_until_it_arrives_is_given_up_or_forgotten(api: TestClient, store: Store) -> None:
    """The test sets the attempts, the next attempt and the arrival of a delivery of `add_watched_rows`, as a sender
    would leave them."""
    soon, past, long_past = NOW + timedelta(hours=1), NOW - timedelta(minutes=1), NOW - timedelta(days=2)
    for attempts, next_at, delivered_at, late, given_up in (
        *((1, soon, None, 1, 0), (ATTEMPTS - 1, past, None, 1, 0), (ATTEMPTS, soon, None, 1, 0)),
        *((ATTEMPTS, past, None, 0, 1), (ATTEMPTS, long_past, None, 0, 1)),
        *((1, long_past, None, 0, 0), (1, soon, NOW, 0, 0), (ATTEMPTS, past, NOW, 0, 0)),
    ):
        with store.write() as session:
            values = {"attempts": attempts, "next_at": next_at, "delivered_at": delivered_at}
            session.execute(update(table_of(Deliveries)).where(Deliveries.target == "a").values(values))
        metrics = metrics_of(api)
        counts = [value(metrics, f"coevo_alert_deliveries_{name}") for name in ("late", "given_up_total")]
        assert counts == [late, given_up], values


def test_there_are_metrics_of_runs_stages_questions_alerts_and_the_pool(api: TestClient) -> None:
    metrics = metrics_of(api)
    runs = {dict(labels)["state"]: now for (name, labels), now in metrics.items() if name == "coevo_runs"}
    states = {dict(labels)["state"]: now for (name, labels), now in metrics.items() if name == "coevo_run_state"}
    assert runs == states == {state: state == "interrupted" for state in MEANINGS}  # no process has its lease
    assert value(metrics, "coevo_iteration", run=RUN) == 2
    assert value(metrics, "coevo_stage_duration_seconds", run=RUN, stage="check_health") == 180
    assert value(metrics, "coevo_stage_running_seconds", run=RUN, stage="train_solver") >= 3600
    assert ("coevo_stage_running_seconds", frozenset({("run", RUN), ("stage", "evaluate")})) not in metrics
    # The first iteration has 2 kept questions (api_examples.QUESTIONS), the second has 5.
    assert value(metrics, "coevo_questions_total", run=RUN, verdict="kept") == 7
    assert value(metrics, "coevo_questions_total", run=RUN, verdict="no_majority") == 0
    assert value(metrics, "coevo_alerts", run=RUN, severity="critical", acknowledged="false") == 1
    assert value(metrics, "coevo_alerts", run=RUN, severity="critical", acknowledged="true") == 2
    assert value(metrics, "coevo_alerts", run=RUN, severity="warning", acknowledged="true") == 0
    assert value(metrics, "coevo_alert_deliveries_late") == 1
    assert value(metrics, "coevo_alert_deliveries_given_up_total") == 0
    assert value(metrics, "coevo_pool_jobs", status="queued", kind="GPU") == 1
    assert value(metrics, "coevo_pool_units", status="queued", kind="GPU") == 2
    assert value(metrics, "coevo_pool_jobs", status="running", kind="CPU") == 0
    assert value(metrics, "coevo_pool_wait_seconds", kind="GPU") >= 0
    assert value(metrics, "coevo_pool_unit_seconds_total", kind="GPU") == 0


def test_an_empty_store_has_metrics_too(store: Store, tmp_path: Path) -> None:
    metrics = metrics_of(local_api(store, tmp_path))
    assert value(metrics, "coevo_runs", state="running") == 0
    assert not any(dict(labels).get("run") for _, labels in metrics)


def test_the_number_of_label_values_is_limited_and_no_label_is_an_id(api: TestClient, store: Store) -> None:
    with store.write() as session:
        for i in range(LARGEST + 5):
            queries.runs.create_run(session, name=f"later-{i}", config=CoEvolution(iterations=1))
    metrics = metrics_of(api)
    labels = defaultdict[str, set[str]](set)
    for key, label in (pair for _, pairs in metrics for pair in pairs):
        labels[key].add(label)
    names = "run oracle slice figure verdict stage state status severity acknowledged kind service purpose direction"
    assert labels.keys() == {*names.split()}
    assert len(labels["run"]) == LARGEST
    assert RUN in labels["run"]  # it changed before all the others, but it is running
    assert value(metrics, "coevo_runs", state="created") == LARGEST + 5
    assert value(metrics, "coevo_runs", state="interrupted") == 1
    assert not any("/" in text for values in labels.values() for text in values)


@pytest.mark.parametrize(
    ("kind", "shown"),
    [("critical", True), ("acknowledged", False), ("held", True), ("paused", True), ("failed", True), ("dead", False)],
)
def test_who_is_on_call_sees_runs_with_open_alerts_and_those_that_broke_before_those_that_changed_last(
    store: Store, tmp_path: Path, kind: str, shown: bool
) -> None:
    """A run that changed before many others that are done. Dead runs have the status "running" for good."""
    with store.write() as session:
        for i in range(LARGEST + 5):
            queries.runs.create_run(session, name=f"later-{i}", config=CoEvolution(iterations=1))
            queries.runs.set_run_status(session, f"later-{i}", "done")
        queries.runs.create_run(session, name="old", config=CoEvolution(iterations=1))
        broken = {"failed": "failed", "paused": "paused", "held": "running", "dead": "running"}
        ago = timedelta(hours=2) if kind == "failed" else timedelta(days=40)
        values = {"status": broken.get(kind, "done"), "updated_at": NOW - ago}
        session.execute(update(table_of(Runs)).where(Runs.name == "old").values(values))
        if kind in ("critical", "acknowledged"):
            insert_new(session, Alerts, [_alert("old", "a" * 16, NOW if kind == "acknowledged" else None)])
        if kind == "held":
            queries.run_leases.claim_run(session, run="old", owner="elsewhere:1:1", lease_seconds=60)
    metrics = metrics_of(local_api(store, tmp_path))
    assert ("old" in {dict(labels).get("run") for _, labels in metrics}) is shown
    assert value(metrics, "coevo_runs_not_shown") == 6
    assert value(metrics, "coevo_open_alerts", severity="critical") == (kind == "critical")


def test_the_costs_of_a_run_read_the_pool_s_jobs_of_that_run_only(store: Store) -> None:
    with store.write() as session:
        for run in ("mine", "other"):
            queries.runs.create_run(session, name=run, config=CoEvolution(iterations=1))
            queries.pool.join_pool(
                session, run=run, iteration=1, stage="train_solver", owner="me", kind="CPU", units=2.0
            )
        assert [job.run for job in queries.pool.pool_jobs(session, "mine")] == ["mine"]
        assert [row.stage for row in costs_by_stage(session, "mine", Rates())] == ["train_solver"]
        assert queries.pool.used_by_run(session) == {"mine": 0.0, "other": 0.0}


def test_a_scrape_does_not_read_the_tables_of_questions_and_votes(api: TestClient) -> None:
    statements: list[str] = []

    def record(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", record)
    try:
        scrape(api)
    finally:
        event.remove(Engine, "before_cursor_execute", record)
    named = {name for statement in statements for name in re.findall(r"(?:FROM|JOIN) \(?(\w+)", statement)}
    assert named - {"SELECT"} == SCRAPED


def test_metrics_need_a_key_where_the_api_asks_for_keys(store: Store, tmp_path: Path) -> None:
    fill(store)
    api = TestClient(create_app(store, tmp_path, ask_for_keys=True))
    reader, runner = new_key(store, "prometheus", ("read",)), new_key(store, "runner", ("run",))
    assert api.get("/metrics").status_code == 401
    assert api.get("/metrics", headers={"Authorization": f"Bearer {runner}"}).status_code == 403
    assert 'coevo_runs{state="interrupted"} 1.0' in scrape(api, Authorization=f"Bearer {reader}")


def test_two_apps_have_the_same_metrics_and_only_coevo_s(api: TestClient, store: Store, tmp_path: Path) -> None:
    assert metrics_of(local_api(store, tmp_path, prefect=SILENT)).keys() == metrics_of(api).keys()
    assert not re.search(r"^(?!coevo_|#)", scrape(api).rstrip("\n"), re.MULTILINE)


def test_every_computed_series_has_a_metric(store: Store) -> None:
    fill(store)
    with store.read() as session:
        points = points_of(session, RUN, 1)
    assert {"label_accuracy", "p_hat", "vote_entropy", "pseudo_reward", "held_out"} <= {point.name for point in points}
    assert {point.name for point in points} <= FIGURES.keys()


def test_the_documentation_has_every_metric(api: TestClient) -> None:
    documented = set(re.findall(r"`(coevo_[a-z_]+)`", (ROOT / "docs" / "alerts.md").read_text()))
    exposed = {name for name, _ in metrics_of(api)}
    figures = {figure.exposed_as for figure in FIGURES.values()}  # from whose names most of these follow
    # The documentation names the figures' other metrics only once.
    others = re.compile(r"_(ci_(lower|upper)(_[a-z]+)?|n|audited)$|_estimated_")
    assert {name for name in exposed - figures if not others.search(name)} <= documented
    assert documented <= exposed | figures


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on this machine")
def test_promtool_finds_no_problem_in_the_metrics(api: TestClient) -> None:
    command = ["promtool", "check", "metrics"]
    done = subprocess.run(command, input=scrape(api), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
