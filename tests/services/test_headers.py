"""The headers of every response."""

from __future__ import annotations

from pathlib import Path

import pytest
from api_examples import RUN, fill
from fastapi.testclient import TestClient
from local_api import local_api

from services.api.app import PREFIX, create_app
from storage.session import Store

FILE = f"{PREFIX}/runs/{RUN}/export"


@pytest.fixture
def store(sqlite: Store) -> Store:
    fill(sqlite)
    return sqlite


@pytest.mark.parametrize("keys", [False, True])
def test_responses_forbid_browsers_to_guess_their_type_and_to_store_them(
    store: Store, tmp_path: Path, keys: bool
) -> None:
    app = create_app(store, tmp_path / "exports", ask_for_keys=keys)
    api = TestClient(app, "http://127.0.0.1", raise_server_exceptions=False)
    paths = [f"{PREFIX}/runs", f"{FILE}?format=csv", f"{FILE}/manifest?format=csv", "/metrics", "/healthz"]
    paths += ["/api/openapi.json", "/nowhere", f"{PREFIX}/runs/{RUN}?x=%00", f"{PREFIX}/runs/nobody"]
    responses = [api.get(path) for path in paths]
    responses.append(api.post(f"{PREFIX}/runs", content=b" " * 100_000, headers={"Content-Type": "application/json"}))
    responses.append(api.get("/healthz", headers={"Host": "evil.example"}))
    app.state.exports = tmp_path / "coevo.db"  # a file where a folder should be
    responses.append(api.get(FILE))
    expected = {401, 404, 413, 200} if keys else {200, 404, 413, 421, 422, 500}
    assert {response.status_code for response in responses} == expected
    for response in responses:
        headers = (response.headers["x-content-type-options"], response.headers["cache-control"])
        assert headers == ("nosniff", "no-store"), response.url


def test_a_browser_revalidates_a_page_and_its_files(store: Store, tmp_path: Path) -> None:
    """They have no data of any run, so a browser may store them; the API answers 304 while they have not changed."""
    api = local_api(store, tmp_path)
    for path in ("/", "/static/app.js", "/vendor/d3.min.js"):
        headers = api.get(path).headers
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-cache")
    again = api.get("/static/app.js", headers={"If-None-Match": api.get("/static/app.js").headers["etag"]})
    assert again.status_code == 304
