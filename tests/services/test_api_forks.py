"""A fork in the API: its inherited iterations are shown as its own, and named as those of the run that made them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from core.types import OracleLabel
from orchestrator.check.refusals import refuse_unforkable
from services.api.run_page import write_run_page
from services.drift.alerts import raise_alerts
from services.drift.series import points_of, refresh_estimates, refresh_labels
from services.run_report.figures import figures
from services.run_report.headline import details
from services.run_report.measures import measure
from services.run_report.summary import summary_rows
from storage import queries
from storage.session import Store, open_store
from tests.api_server import api_of, get, post, refused
from tests.services.local_api import local_api
from tests.synthetic_run import fill_run, fork_run, iterations


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run "old" of three iterations, and its fork "new", which begins after iteration 2 and has made the third."""
    path = tmp_path_factory.mktemp("forked") / "coevo.db"
    with closing(open_store(f"sqlite:///{path}", create=True)) as store:
        fill_run(store, "old", per_level=5)
        fork_run(store, "old", 2, "new")
        for run in ("old", "new"):
            with store.write() as session:
                queries.series.put_series(session, run, [at for t in range(4) for at in points_of(session, run, t)])
                refresh_estimates(session, run)
    return path


@pytest.fixture
def forked(file: Path, tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(f"sqlite:///{shutil.copyfile(file, tmp_path / 'coevo.db')}")) as store:
        yield store


@pytest.fixture
def client(forked: Store, tmp_path: Path) -> TestClient:
    return api_of(forked, tmp_path / "exports")


def test_the_inherited_iterations_are_named(client: TestClient) -> None:
    run = get(client, "/runs/new")
    assert (run["inherited"], run["iterations_done"]) == ([{"run": "old", "first": 0, "last": 2}], 3)
    assert get(client, "/runs/old")["inherited"] == []
    iterations = {row["iteration"]: row["inherited_from"] for row in get(client, "/runs/new/iterations")}
    assert iterations == {0: "old", 1: "old", 2: "old", 3: None}
    assert {row["iteration"] for row in get(client, "/runs/new/stages")} == {3}  # what it has done itself


def test_series_have_the_points_of_inherited_iterations(client: TestClient) -> None:
    old, new = (get(client, f"/runs/{run}/series", name="label_accuracy") for run in ("old", "new"))
    by = {(point["over"], point["iteration"]): point for point in old}
    assert {point["iteration"]: point["inherited_from"] for point in new} == {1: "old", 2: "old", 3: None}
    assert all(
        {**point, "inherited_from": None} == by[point["over"], point["iteration"]]
        for point in new
        if point["inherited_from"]
    )
    [of_new] = get(client, "/series", run="new", name="label_accuracy")
    assert of_new["points"] == new


@pytest.mark.parametrize(
    "path",
    [
        "iterations/2/questions",
        "iterations/2/questions/3",
        "iterations/2/statistics",
        "iterations/2/clusters",
        "training/solver/2/steps",
        "training/solver/2/rollouts",
        "checkpoints/solver/2",
        "checkpoints/base/0",
        "metrics?iteration=2",
        "iterations/2/samples/human",
    ],
)
def test_an_inherited_iteration_is_that_of_the_run_that_made_it(client: TestClient, path: str) -> None:
    assert get(client, f"/runs/new/{path}") == get(client, f"/runs/old/{path}")


def test_a_sample_of_an_inherited_iteration_is_drawn_where_it_was_made(client: TestClient) -> None:
    post(client, "/runs/new/iterations/2/samples", 201, oracle="human", size=5)
    assert get(client, "/runs/old/iterations/2/samples/human")["drawn"] == 5
    question = get(client, "/runs/new/iterations/2/labelling/next", annotator="ann")["question"]
    assert question["id"].startswith("old/2/")
    post(client, f"/runs/new/iterations/2/labelling/{question['index']}", 201, verdict="right", annotator="ann")
    progress = get(client, "/runs/old/iterations/2/labelling/next", annotator="ann")["progress"]
    assert (progress["drawn"], progress["annotated"]) == (5, 1)


def test_the_estimates_of_a_fork_follow_an_audit_of_what_it_has_inherited(forked: Store) -> None:
    with forked.write() as session:
        labels = [
            OracleLabel(row.question_id, "judge", "right", None)
            for row in queries.questions.labels_of(session, "old", 1, "kept")
        ]
        queries.questions.add_oracle_labels(session, labels)
        refresh_labels(session, "old", 1)
        raise_alerts(session, "old", 1)
    with forked.read() as session:
        by_judge = queries.series.series_of(session, "new", "label_accuracy", over="kept", oracle="judge")
        alerts = queries.alerts.list_alerts(session, run="new", iteration=1)
    assert {point.iteration: point.estimated for point in by_judge} == {1: False, 2: True, 3: True}
    assert alerts == []


def test_what_is_inherited_has_cost_nothing(client: TestClient, forked: Store) -> None:
    costs = get(client, "/runs/new/costs")
    with forked.read() as session:
        kept = {t: stats.kept for t, stats in queries.figures.filter_stats_of(session, "new").items()}
    assert {row["iteration"] for row in costs["rows"]} <= {3}
    assert 0 < costs["kept"] == kept[3] < sum(kept.values())


def test_an_export_has_what_the_fork_has_made_and_names_the_rest(client: TestClient) -> None:
    manifest = get(client, "/runs/new/export/manifest")
    assert (manifest["iterations"], manifest["inherited"]) == ([3], {"old": [0, 1, 2]})
    assert get(client, "/runs/old/export/manifest")["inherited"] == {}
    refused(client, "/runs/new/export", 404, "iteration 2", "old", iterations="2")


def test_reports_have_the_inherited_iterations(forked: Store, tmp_path: Path) -> None:
    old, new = (iterations(forked, run) for run in ("old", "new"))
    assert (new[:3], len(new)) == (old[:3], 4)
    assert figures(forked, "new")["inherited"] == {"old": [0, 1, 2]}
    measures = measure(forked, "new")
    assert "0 to 2" in details(measures)[0]
    assert [row["iteration"] for row in summary_rows(measures)] == ["base of old", "1 of old", "2 of old", "3"]
    assert '"inherited_from":"old"' in write_run_page(forked, "new", tmp_path).read_text().replace(" ", "")


def test_a_fork_that_has_made_nothing_yet_is_shown(forked: Store, tmp_path: Path) -> None:
    fork_run(forked, "new", 3, "newest", own=False)
    client = api_of(forked, tmp_path / "exports")
    run = get(client, "/runs/newest")
    assert [part["run"] for part in run["inherited"]] == ["old", "new"]
    assert (run["state"], run["iterations_done"]) == ("created", 3)
    for path in ("headline", "costs", "audits", "evaluations", "training-labels", "checkpoints", "remaining", "matrix"):
        get(client, f"/runs/newest/{path}")
    assert [summary["name"] for summary in get(client, "/runs", sort="change")["items"]].count("newest") == 1


FORK = {"name": "other", "from_run": "old:2"}


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({"name": "other"}, 422, "preset"),
        ({**FORK, "preset": "demo"}, 422, "preset"),
        ({**FORK, "from_run": "old"}, 422, "body.from_run"),
        ({**FORK, "from_run": "none:2"}, 422, "body.from_run: run none"),
        ({**FORK, "from_run": "old:4"}, 422, "body.from_run: .*old:3"),
        ({**FORK, "overrides": {"shared": True}}, 422, "body.from_run: .*shared"),
        ({**FORK, "overrides": {"dataset.votes": 0}}, 422, "body.overrides.dataset.votes"),
        ({**FORK, "overrides": {"base_model": "/models/other"}}, 422, "body.overrides.base_model"),
        ({**FORK, "flow": "self_train"}, 422, "body.flow"),
        ({**FORK, "name": "old"}, 409, "run old"),
    ],
)
def test_a_fork_that_cannot_be_started_is_refused_with_its_field(
    forked: Store, tmp_path: Path, body: dict[str, Any], status: int, named: str
) -> None:
    client = local_api(forked, tmp_path, refuse_unforkable=refuse_unforkable)
    response = client.post("/api/v1/runs", json=body)
    assert response.status_code == status
    detail = response.json()["detail"]
    assert all(part in detail for part in named.split(".*"))
