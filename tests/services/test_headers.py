"""Headers that every answer has."""

from __future__ import annotations

from pathlib import Path

import pytest
from api_examples import RUN, fill
from fastapi.testclient import TestClient

from services.api.app import PREFIX, create_app
from storage.session import Store

FILES = f"{PREFIX}/runs/{RUN}/iterations/1/exports"


@pytest.fixture
def store(sqlite: Store) -> Store:
    fill(sqlite)
    return sqlite


@pytest.mark.parametrize("keys", [False, True])
def test_no_browser_guesses_what_an_answer_is_or_keeps_it(store: Store, tmp_path: Path, keys: bool) -> None:
    app = create_app(store, tmp_path / "exports", ask_for_keys=keys)
    api = TestClient(app, "http://127.0.0.1", raise_server_exceptions=False)
    paths = [f"{PREFIX}/runs", f"{FILES}/csv", f"{FILES}/csv/manifest", "/metrics", "/healthz", "/api/openapi.json"]
    answers = [api.get(path) for path in [*paths, "/nowhere", f"{PREFIX}/runs/{RUN}?x=%00", f"{PREFIX}/runs/nobody"]]
    answers.append(api.post(f"{PREFIX}/runs", content=b" " * 100_000, headers={"Content-Type": "application/json"}))
    answers.append(api.get("/healthz", headers={"Host": "evil.example"}))
    app.state.exports = tmp_path / "coevo.db"  # a file where a folder should be
    answers.append(api.get(f"{FILES}/jsonl"))
    expected = {401, 404, 413, 200} if keys else {200, 404, 413, 421, 500}
    assert {answer.status_code for answer in answers} == expected
    for answer in answers:
        found = (answer.headers["x-content-type-options"], answer.headers["cache-control"])
        assert found == ("nosniff", "no-store"), answer.url


def test_a_page_and_its_files_are_asked_for_again(store: Store, tmp_path: Path) -> None:
    """They hold nothing of any run: a browser may keep them, and is told with 304 that they are the same."""
    api = TestClient(create_app(store, tmp_path, ask_for_keys=False), "http://127.0.0.1")
    for path in ("/", "/static/app.js", "/vendor/d3.min.js"):
        answer = api.get(path)
        assert (answer.headers["x-content-type-options"], answer.headers["cache-control"]) == ("nosniff", "no-cache")
    again = api.get("/static/app.js", headers={"If-None-Match": api.get("/static/app.js").headers["etag"]})
    assert again.status_code == 304
