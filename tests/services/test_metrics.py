"""`GET /metrics` on real databases, read as Prometheus' own parser reads it."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from api_examples import RUN, fill
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine, event, update

from core.questions.filtering import FilterStats
from core.settings.alerts import Tested
from core.settings.config import CoEvolution
from orchestrator.installation.home import ROOT
from services.api.app import create_app
from services.api.figure_metrics import FIGURES, figure_of
from services.api.keys import new_key
from services.api.metrics import LARGEST
from services.drift.outbox import ATTEMPTS
from services.drift.series import points_of
from storage import queries
from storage.models import Alerts, Deliveries, Series, Stages
from storage.queries.tables import insert_new, table_of
from storage.rows import SeriesPoint
from storage.session import Store

NOW = datetime.now(UTC)
SCRAPED = {"api_keys", "runs", "stages", "series", "filter_stats", "alerts", "deliveries", "pool_jobs"}
Found = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def api(store: Store, tmp_path: Path) -> TestClient:
    fill(store)
    watch(store)
    return TestClient(create_app(store, tmp_path, ask_for_keys=False), "http://localhost")


def watch(store: Store, run: str = RUN) -> None:
    """What is watched: series of two iterations, a stage that runs, alerts, a waiting training."""
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
        insert_new(session, Series, [{"run": run, **each} for each in map(_fields, points)])
        stats = FilterStats(10, 5, 1, 2, 0, 1, 1, 0.5, 0.0, 0)
        queries.figures.add_filter_stats(session, run=run, iteration=2, stats=stats)
        insert_new(session, Stages, [_stage(run, t, 90 * t, "check_health") for t in (1, 2)])
        insert_new(session, Stages, [_stage(run, 3, None, "train_solver")])
        queries.runs.set_run_status(session, run, "running")
        insert_new(session, Alerts, [_alert(run, f"{run}-{i}", NOW if i else None) for i in range(3)])
        late = {"alert": f"{run}-0", "next_at": NOW, "delivered_at": None, "error": "refused"}
        insert_new(session, Deliveries, [{**late, "target": name, "attempts": n} for name, n in (("a", 2), ("b", 0))])
        queries.pool.join_pool(
            session, run=run, iteration=3, stage="train_solver", owner="me", kind="GPU", units=2.0
        )


def _fields(point: SeriesPoint) -> dict[str, Any]:
    return {name: getattr(point, name) for name in SeriesPoint.__dataclass_fields__}


def _stage(run: str, iteration: int, seconds: float | None, stage: str) -> dict[str, Any]:
    began = NOW - timedelta(hours=1)
    ended = None if seconds is None else began + timedelta(seconds=seconds)
    status = "running" if ended is None else "done"
    key = {"run": run, "iteration": iteration, "stage": stage, "status": status, "owner": "me", "attempt": 1}
    times = {"started_at": began, "finished_at": ended, "lease_expires": NOW - timedelta(minutes=20)}
    return {**key, **times, "result": None, "error": None}


def _alert(run: str, key: str, acknowledged: datetime | None) -> dict[str, Any]:
    what = {"rule": "drop", "series": "label_accuracy", "over": "kept", "oracle": "exact", "severity": "critical"}
    figures = {"value": 0.5, "lo": None, "hi": None, "n": 96, "reference": 0.8, "threshold": None}
    said = {"text": "it fell", "raised_at": NOW, "acknowledged_by": None, "note": ""}
    return {"id": key, "run": run, "iteration": 2, "acknowledged_at": acknowledged, **what, **figures, **said}


def scraped(api: TestClient, **headers: str) -> str:
    response = api.get("/metrics", headers=headers)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return response.text


def samples(text: str) -> Found:
    families = list(text_string_to_metric_families(text))
    assert all(family.documentation and family.type in ("gauge", "counter") for family in families)
    read = [(each.name, frozenset(each.labels.items()), each.value) for family in families for each in family.samples]
    found = {(name, labels): value for name, labels, value in read}
    assert len(found) == len(read)
    return found


def value(found: Found, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def test_figures_are_those_of_each_series_latest_iteration(api: TestClient) -> None:
    found = samples(scraped(api))
    accuracy, over = "coevo_pseudo_label_accuracy", {"run": RUN, "oracle": "exact", "slice": "kept"}
    assert value(found, f"{accuracy}_ratio", **over) == 0.5
    assert value(found, f"{accuracy}_ci_lower_ratio", **over) == 0.4
    assert value(found, f"{accuracy}_ci_upper_ratio", **over) == 0.6
    assert value(found, f"{accuracy}_audited", **over) == 96
    judged = {"run": RUN, "oracle": "judge", "slice": "all"}
    assert value(found, f"{accuracy}_estimated_ratio", **judged) == 0.7
    assert (f"{accuracy}_ratio", frozenset(judged.items())) not in found
    assert value(found, "coevo_vote_entropy_nats", run=RUN, oracle="", slice="all") == 0.9
    assert "coevo_vote_entropy_ci_lower_nats" not in {name for name, _ in found}
    assert value(found, "coevo_duplicate_ratio", run=RUN, oracle="", slice="all") == 0.25
    assert value(found, "coevo_duplicate_n", run=RUN, oracle="", slice="all") == 400
    assert value(found, "coevo_figure_iteration", **over, figure="pseudo_label_accuracy") == 2
    assert value(found, "coevo_figure_iteration", run=RUN, oracle="", slice="all", figure="vote_entropy") == 1
    assert ("coevo_figure_iteration", frozenset({**judged, "figure": "pseudo_label_accuracy"}.items())) not in found
    assert not any("solver_0" in name for name, _ in found)


def test_what_was_measured_stays_when_a_later_iteration_is_estimated_or_another_oracles(
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
    found = samples(scraped(TestClient(create_app(store, tmp_path, ask_for_keys=False), "http://localhost")))
    exact = {"run": RUN, "oracle": "exact", "slice": "kept"}
    assert value(found, "coevo_pseudo_label_accuracy_ratio", **exact) == 0.8
    assert value(found, "coevo_pseudo_label_accuracy_audited", **exact) == 100
    assert value(found, "coevo_pseudo_label_accuracy_estimated_ratio", **exact) == 0.6
    assert value(found, "coevo_pseudo_label_accuracy_ratio", **{**exact, "oracle": "judge"}) == 0.75
    for oracle, iteration in (("exact", 1), ("judge", 3)):
        labels = {**exact, "oracle": oracle, "figure": "pseudo_label_accuracy"}
        assert value(found, "coevo_figure_iteration", **labels) == iteration


def test_a_delivery_is_late_until_it_arrives_is_given_up_or_forgotten(api: TestClient, store: Store) -> None:
    """The one of `watch`, whose attempts, next attempt and arrival are what a sender leaves."""
    soon, past, long_past = NOW + timedelta(hours=1), NOW - timedelta(minutes=1), NOW - timedelta(days=2)
    for attempts, next_at, delivered_at, late, given_up in (
        *((1, soon, None, 1, 0), (ATTEMPTS - 1, past, None, 1, 0), (ATTEMPTS, soon, None, 1, 0)),
        *((ATTEMPTS, past, None, 0, 1), (ATTEMPTS, long_past, None, 0, 1)),
        *((1, long_past, None, 0, 0), (1, soon, NOW, 0, 0), (ATTEMPTS, past, NOW, 0, 0)),
    ):
        with store.write() as session:
            left = {"attempts": attempts, "next_at": next_at, "delivered_at": delivered_at}
            session.execute(update(table_of(Deliveries)).where(Deliveries.target == "a").values(left))
        found = samples(scraped(api))
        counts = [value(found, f"coevo_alert_deliveries_{name}") for name in ("late", "given_up_total")]
        assert counts == [late, given_up], left


def test_runs_stages_questions_alerts_and_the_pool(api: TestClient) -> None:
    found = samples(scraped(api))
    assert value(found, "coevo_runs") == 1
    assert value(found, "coevo_iteration", run=RUN) == 2
    statuses = {dict(labels)["status"]: now for (name, labels), now in found.items() if name == "coevo_run_status"}
    assert (statuses.pop("running"), set(statuses.values())) == (1, {0})
    assert value(found, "coevo_stage_duration_seconds", run=RUN, stage="check_health") == 180
    assert value(found, "coevo_stage_running_seconds", run=RUN, stage="train_solver") >= 3600
    assert value(found, "coevo_stage_lease_seconds", run=RUN, stage="train_solver") <= -1200
    # 2 kept of the first iteration (api_examples.MADE), 5 of the second.
    assert value(found, "coevo_questions_total", run=RUN, verdict="kept") == 7
    assert value(found, "coevo_questions_total", run=RUN, verdict="no_majority") == 0
    assert value(found, "coevo_alerts", run=RUN, severity="critical", acknowledged="false") == 1
    assert value(found, "coevo_alerts", run=RUN, severity="critical", acknowledged="true") == 2
    assert value(found, "coevo_alerts", run=RUN, severity="warning", acknowledged="true") == 0
    assert value(found, "coevo_alert_deliveries_late") == 1
    assert value(found, "coevo_alert_deliveries_given_up_total") == 0
    assert value(found, "coevo_pool_jobs", status="queued", kind="GPU") == 1
    assert value(found, "coevo_pool_units", status="queued", kind="GPU") == 2
    assert value(found, "coevo_pool_jobs", status="running", kind="CPU") == 0
    assert value(found, "coevo_pool_wait_seconds", kind="GPU") >= 0
    assert value(found, "coevo_pool_unit_seconds_total", kind="GPU") == 0


def test_an_empty_store_has_metrics_too(store: Store, tmp_path: Path) -> None:
    found = samples(scraped(TestClient(create_app(store, tmp_path, ask_for_keys=False), "http://localhost")))
    assert value(found, "coevo_runs") == 0
    assert not any(dict(labels).get("run") for _, labels in found)


def test_labels_are_bounded_and_never_an_id(api: TestClient, store: Store) -> None:
    with store.write() as session:
        for i in range(LARGEST + 5):
            queries.runs.create_run(session, name=f"later-{i}", config=CoEvolution(iterations=1))
    found = samples(scraped(api))
    labels = {key: {dict(each)[key] for _, each in found if key in dict(each)} for key in _label_names(found)}
    assert labels.keys() == {
        *("run", "oracle", "slice", "figure", "verdict", "stage", "status", "severity", "acknowledged", "kind")
    }
    assert len(labels["run"]) == LARGEST
    assert RUN in labels["run"]  # it changed before all of the others, but it is running
    assert value(found, "coevo_runs") == LARGEST + 6
    assert not any("/" in each for values in labels.values() for each in values)


def _label_names(found: Found) -> set[str]:
    return {key for _, labels in found for key, _ in labels}


def test_questions_and_votes_are_not_counted_at_a_scrape(api: TestClient) -> None:
    said: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        said.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        scraped(api)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    tables = {name for each in said for name in re.findall(r"(?:FROM|JOIN) \(?(\w+)", each) if name != "SELECT"}
    assert tables == SCRAPED - {"api_keys"}


def test_a_key_is_asked_for_where_the_rest_asks(store: Store, tmp_path: Path) -> None:
    fill(store)
    api = TestClient(create_app(store, tmp_path, ask_for_keys=True))
    reader, runner = new_key(store, "prometheus", ("read",)), new_key(store, "runner", ("run",))
    assert api.get("/metrics").status_code == 401
    assert api.get("/metrics", headers={"Authorization": f"Bearer {runner}"}).status_code == 403
    assert "coevo_runs 1.0" in scraped(api, Authorization=f"Bearer {reader}")


def test_each_app_has_a_registry_of_its_own(api: TestClient, store: Store, tmp_path: Path) -> None:
    other = TestClient(create_app(store, tmp_path, ask_for_keys=False), "http://localhost")
    assert samples(scraped(other)).keys() == samples(scraped(api)).keys()
    assert not re.search(r"^(?!coevo_|#)", scraped(api).rstrip("\n"), re.MULTILINE)


def test_a_series_without_a_unit_in_its_name_is_not_exposed() -> None:
    assert figure_of("solver_0_on_1") is None
    assert figure_of("Nasty{} share") is None
    late = figure_of("later_share")
    assert late is not None
    assert (late.name, late.unit) == ("later", "ratio")


def test_every_series_that_is_worked_out_is_exposed(store: Store) -> None:
    fill(store)
    with store.read() as session:
        points = points_of(session, RUN, 1)
    assert {"label_accuracy", "p_hat", "vote_entropy", "pseudo_reward", "held_out"} <= {each.name for each in points}
    assert {*get_args(Tested), *(each.name for each in points)} <= FIGURES.keys()


def test_the_documentation_has_every_metric(api: TestClient) -> None:
    documented = set(re.findall(r"`(coevo_[a-z_]+)`", (ROOT / "docs" / "metrics.md").read_text()))
    exposed = {name for name, _ in samples(scraped(api))}
    figures = {f"coevo_{each.name}_{each.unit}".rstrip("_") for each in FIGURES.values()}
    # Of a figure the documentation has the value, and says once what the others are called.
    others = re.compile(r"_(ci_(lower|upper)(_[a-z]+)?|n|audited)$|_estimated_")
    assert {name for name in exposed | figures if not others.search(name)} <= documented
    assert documented <= exposed | figures


@pytest.fixture
def promtool() -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool on this machine")
    return program


def test_promtool_finds_nothing_to_complain_of(api: TestClient, promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "metrics"], input=scraped(api), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
