"""The list of runs with its filters and pages, and the tags and notes of runs, over REST."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from core.settings.config import CoEvolution
from services.api.access.keys import new_key
from services.api.app import PREFIX, create_app
from storage import queries
from storage.rows import SeriesPoint
from storage.session import Store
from tests.synthetic_run import finish

NAMES = ("a", "b", "c")


@pytest.fixture
def api(store: Store, tmp_path: Path) -> TestClient:
    with store.write() as session:
        for value, name in enumerate(NAMES):
            queries.runs.create_run(session, name=name, config=CoEvolution(), preset="demo")
            points = [SeriesPoint(1, "held_out", "", "", value / 3, None, None, 9)]
            queries.series.put_series(session, name, points)
    return TestClient(create_app(store, tmp_path, ask_for_keys=False), "http://localhost")


def get(api: TestClient, path: str, code: int = 200, **parameters: Any) -> Any:
    response = api.get(PREFIX + path, params=parameters)
    assert response.status_code == code, response.text
    return response.json()


@pytest.mark.parametrize(
    ("sort", "expected"),
    [("-created", "cba"), ("created", "abc"), ("name", "abc"), ("-name", "cba"), ("held_out", "abc")],
)
def test_every_order_goes_on_with_its_next_page(api: TestClient, sort: str, expected: str) -> None:
    listed, after = "", None
    for _ in NAMES:
        page = get(api, "/runs", sort=sort, limit=1, **({} if after is None else {"after": after}))
        listed, after = listed + page["items"][0]["name"], page["next"]
    assert (listed, after) == (expected, None)


def test_a_run_is_listed_with_its_method(api: TestClient) -> None:
    assert {run["method"] for run in get(api, "/runs")["items"]} == {CoEvolution().solver.reward.type}


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
        ({"run": ["a", "nosuch"], "name": "held_out"}, 404, "run nosuch: no such run"),
        ({"run": "a", "name": ["held_out", "held_uot"]}, 422, "did you mean held_out"),
        ({"run": "a"}, 422, "name"),
        ({"name": "held_out"}, 422, "run"),
    ],
)
def test_series_of_several_runs_name_what_is_wrong(
    api: TestClient, parameters: dict[str, Any], status: int, words: str
) -> None:
    assert words in get(api, "/series", status, **parameters)["detail"]


def test_a_cursor_of_another_order_is_refused(api: TestClient) -> None:
    following = get(api, "/runs", sort="name", limit=1)["next"]
    for sort in ("-name", "held_out", "created"):
        assert (
            "expected `next` of a page in the same order"
            in get(api, "/runs", 400, sort=sort, after=following)["detail"]
        )


def test_tags_and_notes_are_changed_and_found(api: TestClient) -> None:
    changed = api.post(f"{PREFIX}/runs/b/notes", json={"add": ["x", "y"], "note": "Line 1\n<b>2</b>", "by": "ann"})
    assert changed.status_code == 200, changed.text
    assert (changed.json()["tags"], changed.json()["noted_by"]) == (["x", "y"], "ann")
    assert api.post(f"{PREFIX}/runs/c/notes", json={"add": ["x"]}).json()["note"] == ""
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
    ("body", "status", "words"),
    [
        ({"add": ["Not a tag"]}, 422, "body.add.0"),
        ({"note": "x" * 4_001}, 422, "body.note"),
        ({"note": "nul\0"}, 422, "body.note"),
        ({"tags": ["x"]}, 422, "body.tags"),
    ],
)
def test_tags_and_notes_that_are_not_allowed_are_refused(
    api: TestClient, body: dict[str, Any], status: int, words: str
) -> None:
    response = api.post(f"{PREFIX}/runs/b/notes", json=body)
    assert (response.status_code, words in response.json()["detail"]) == (status, True)
    assert api.post(f"{PREFIX}/runs/nobody/notes", json={}).status_code == 404


def test_more_tags_than_a_run_may_have_are_a_conflict(api: TestClient) -> None:
    assert api.post(f"{PREFIX}/runs/b/notes", json={"add": [f"t{i}" for i in range(20)]}).status_code == 200
    refused = api.post(f"{PREFIX}/runs/b/notes", json={"add": ["more"]})
    assert (refused.status_code, refused.json()["detail"]) == (409, "run b: tags: expected at most 20, got 21")


def test_whoever_has_a_key_changes_tags_under_its_name(sqlite: Store, tmp_path: Path) -> None:
    with sqlite.write() as session:
        queries.runs.create_run(session, name="a", config=CoEvolution())
    api = TestClient(create_app(sqlite, tmp_path, ask_for_keys=True))
    headers = {"Authorization": f"Bearer {new_key(sqlite, 'bob', ['run'])}"}
    changed = api.post(f"{PREFIX}/runs/a/notes", json={"add": ["x"], "by": "ann"}, headers=headers)
    assert changed.json()["noted_by"] == "bob"
