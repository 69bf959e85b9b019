"""A run whose reward is in a package that the API's process does not have: REST, the command and the run's page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Page, expect
from sqlalchemy import update
from typer.testing import CliRunner

from orchestrator.cli import app as cli
from services.api.app import PREFIX, create_app
from storage import queries
from storage.models import Runs
from storage.session import Store
from tests.api_server import serving
from tests.services.api_examples import RUN, fill

SENTENCE = "this process does not know the reward 'confident'"
VALUES = {"run": RUN, "iteration": "1", "index": "0", "name": "kl", "baseline": RUN, "solver": "1", "model": f"{RUN}:1"}


@pytest.fixture
def store(sqlite: Store) -> Store:
    """A store with a run that was made by a process with the package of the reward."""
    fill(sqlite)
    with sqlite.write() as session:
        config = queries.runs.get_run(session, RUN).config
        solver = {**config["solver"], "reward": {**config["solver"]["reward"], "type": "confident"}}
        session.execute(update(Runs).values(config={**config, "solver": solver}))
    return sqlite


def test_no_route_of_the_run_is_an_unexpected_error(store: Store, tmp_path: Path) -> None:
    api = TestClient(create_app(store, tmp_path, ask_for_keys=False), "http://localhost", raise_server_exceptions=False)
    answers = {}
    for path, methods in api.get("/api/openapi.json").json()["paths"].items():
        parameters = methods.get("get", {}).get("parameters", [])
        if not any(parameter["name"] == "run" for parameter in parameters):
            continue
        query = {p["name"]: VALUES[p["name"]] for p in parameters if p["in"] == "query" and p["name"] in VALUES}
        url = re.sub(r"\{(\w+)\}", lambda part: VALUES.get(part[1], "1"), path)
        response = api.get(url, params=query)
        answers[path.removeprefix(PREFIX)] = response.status_code
        assert response.status_code < 500, (url, response.text)
        if response.status_code == 409 and "reward" in response.text:
            assert SENTENCE in response.json()["detail"], url
            assert "409" in methods["get"]["responses"], path
    assert {path for path, status in answers.items() if status == 409} >= {
        f"/runs/{{run}}/{name}" for name in ("configuration", "costs", "remaining", "training-labels")
    }
    assert answers["/runs/{run}"] == answers["/runs/{run}/series"] == answers["/runs/{run}/audits"] == 200
    resumed = api.post(f"{PREFIX}/runs/{RUN}/resume", json={})
    assert (resumed.status_code, SENTENCE in resumed.text) == (409, True)


def test_the_run_s_page_shows_what_it_can(page: Page, store: Store, tmp_path: Path) -> None:
    with serving(store, tmp_path) as address:
        page.goto(f"{address}/runs/{RUN}")
        expect(page.locator("main > .problem")).to_contain_text(SENTENCE)
        expect(page.get_by_role("heading", name="Verdicts")).to_be_visible()


def test_the_command_says_the_same(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    monkeypatch.delenv("COEVO_DATABASE", raising=False)
    result = CliRunner().invoke(cli, ["report", RUN, "--json"])
    assert (result.exit_code, SENTENCE in result.stderr) == (1, True)
