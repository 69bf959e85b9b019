"""The list of runs with its filters and pages, and the tags and notes of runs, over REST."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from core.settings.config import CoEvolution
from services.api.access.keys import new_key
from storage import queries
from storage.rows import SeriesPoint
from storage.session import Store
from tests.api_server import api_of, get, post, refused
from tests.synthetic_run import finish

NAMES = ("a", "b", "c")


@pytest.fixture
def api(store: Store, tmp_path: Path) -> TestClient:
    with store.write() as session:
        for value, name in enumerate(NAMES):
            queries.runs.create_run(session, name=name, config=CoEvolution(), preset="demo")
            points = [SeriesPoint(1, "held_out", "", "", value / 3, None, None, 9)]
            queries.series.put_series(session, name, points)
    return api_of(store, tmp_path)


@pytest.mark.parametrize(
    ("sort", "expected"),
    [("-created", "cba"), ("created", "abc"), ("name", "abc"), ("-name", "cba"), ("held_out", "abc")],
)
def test_every_order_goes_on_with_its_next_page(api: TestClient, sort: str, expected: str) -> None:
    listed, after = "", None
    for _ in NAMES:
        page = get(api, "/runs", sort=sort, limit=1, **({} if after is None else {"after": after}))
        listed, after = listed + page["items"][0]["name"], page["next"]
        assert page["items"][0]["method"] == CoEvolution().solver.reward.type
    assert (listed, after) == (expected, None)
    following = get(api, "/runs", sort=sort, limit=1)["next"]
    refused(api, "/runs", 400, "after", sort="created" if sort == "held_out" else "held_out", after=following)


def test_the_list_says_how_many_iterations_are_done_and_their_curves_come_with_one_request(
    api: TestClient, store: Store
) -> None:
    with store.write() as session:
        finish(session, "a", 1, "check_health", {}, 1)
        finish(session, "a", 2, "evaluate", {}, 1)
    assert {run["name"]: run["iterations_done"] for run in get(api, "/runs")["items"]} == {"a": 1, "b": 0, "c": 0}
    alone = {run: get(api, f"/runs/{run}/series", name="held_out") for run in NAMES}
    together = get(api, "/series", run=["c", "a"], name=["held_out", "label_accuracy"])
    assert together == [{"run": "c", "points": alone["c"]}, {"run": "a", "points": alone["a"]}]
    assert all(alone.values())


@pytest.mark.parametrize(
    ("parameters", "status", "words"),
    [
        ({"run": ["a", "nosuch"], "name": "held_out"}, 404, "run nosuch"),
        ({"run": "a", "name": ["held_out", "held_uot"]}, 422, "did you mean held_out"),
        ({"run": "a"}, 422, "name"),
        ({"name": "held_out"}, 422, "run"),
    ],
)
def test_series_of_several_runs_name_what_is_wrong(
    api: TestClient, parameters: dict[str, Any], status: int, words: str
) -> None:
    refused(api, "/series", status, words, **parameters)


def test_the_pool_lists_what_waits_or_runs_and_of_one_run_everything(api: TestClient, store: Store) -> None:
    job: dict[str, Any] = {"iteration": 1, "stage": "train_solver", "owner": "me"}
    with store.write() as session:
        for run in ("a", "b"):
            queries.pool.join_pool(session, run=run, **job, kind="CPU", units=1)
        queries.pool.leave_pool(session, run="a", **job)
    assert [(row["run"], row["status"]) for row in get(api, "/pool")] == [("b", "queued")]
    assert [(row["run"], row["status"]) for row in get(api, "/pool", run="a")] == [("a", "done")]
    assert get(api, "/pool", run="c") == []
    refused(api, "/pool", 404, "run nosuch", run="nosuch")


def test_tags_and_notes_are_changed_and_found(api: TestClient) -> None:
    changed = post(api, "/runs/b/notes", add=["x", "y"], note="Line 1\n<b>2</b>", by="ann")
    assert (changed["tags"], changed["noted_by"]) == (["x", "y"], "ann")
    assert post(api, "/runs/c/notes", add=["x"])["note"] == ""
    assert [run["name"] for run in get(api, "/runs", tag=["x"])["items"]] == ["c", "b"]
    assert [run["name"] for run in get(api, "/runs", tag=["x", "y"])["items"]] == ["b"]
    [with_note] = get(api, "/runs", note="LINE 1")["items"]
    assert with_note["note"] == "Line 1\n<b>2</b>"
    assert get(api, "/tags") == [{"tag": "x", "runs": 2}, {"tag": "y", "runs": 1}]


def test_runs_are_filtered_by_their_states(api: TestClient, store: Store) -> None:
    with store.write() as session:
        queries.runs.set_run_status(session, "a", "done")
        queries.runs.set_run_status(session, "b", "failed")
    assert [run["name"] for run in get(api, "/runs", state=["done", "failed"])["items"]] == ["b", "a"]
    assert [run["name"] for run in get(api, "/runs", state="created")["items"]] == ["c"]
    with store.write() as session:
        queries.runs.set_run_status(session, "c", "running")
    # No process works on it, so it is interrupted, whatever its stored status says.
    assert [run["name"] for run in get(api, "/runs", state="interrupted")["items"]] == ["c"]
    assert [run["name"] for run in get(api, "/runs", state="failed", name="a")["items"]] == []


@pytest.mark.parametrize(
    ("run", "body", "status", "words"),
    [
        ("b", {"add": ["Not a tag"]}, 422, "body.add.0"),
        ("b", {"note": "x" * 4_001}, 422, "body.note"),
        ("b", {"note": "nul\0"}, 422, "body.note"),
        ("b", {"tags": ["x"]}, 422, "body.tags"),
        ("b", {"add": [f"t{i}" for i in range(20)]}, 409, "expected at most 20, got 21"),
        ("nobody", {}, 404, "run nobody"),
    ],
)
def test_tags_and_notes_that_are_not_allowed_are_refused(
    api: TestClient, run: str, body: dict[str, Any], status: int, words: str
) -> None:
    post(api, "/runs/b/notes", add=["first"])
    assert words in post(api, f"/runs/{run}/notes", status, **body)["detail"]


def test_whoever_has_a_key_changes_tags_under_its_name(sqlite: Store, tmp_path: Path) -> None:
    with sqlite.write() as session:
        queries.runs.create_run(session, name="a", config=CoEvolution())
    api = api_of(sqlite, tmp_path, key=new_key(sqlite, "bob", ["run"]))
    assert post(api, "/runs/a/notes", add=["x"], by="ann")["noted_by"] == "bob"
