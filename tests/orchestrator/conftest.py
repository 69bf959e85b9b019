"""Runs for all tests that need a whole one: one that was started in Prefect's UI and not interrupted, and two without
real services; and the client of a Prefect server, for tests that run their own flows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_LOGGING_TO_API_ENABLED,
    temporary_settings,
)

from orchestrator.installation.home import Home
from storage.session import Store, open_store
from tests.browsing import open_prefect
from tests.conftest import opened_browser
from tests.live import Live, wait_until
from tests.orchestrator import whole_runs
from tests.orchestrator.stored_runs import store_loop, store_rounds
from tests.orchestrator.whole_runs import WholeRun
from tests.services.prefect_server import AUTH

_VARIABLES = (
    *("COEVO_DATABASE", "COEVO_RAY_ADDRESS", "COEVO_BENCHMARKS", "COEVO_API_URL", "COEVO_API_KEY"),
    *("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "RAY_ADDRESS", "JUDGE_API_KEY"),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The home of the commands that a test calls; its store is that of the fixture `sqlite`."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COEVO_HOME", str(tmp_path))
    return Home(tmp_path)


@pytest.fixture
def folder(home: Home, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder for commands, whose home is its folder `home`, which does not exist yet."""
    monkeypatch.setenv("COEVO_HOME", str(home.path / "home"))
    monkeypatch.chdir(home.path)
    return home.path


@pytest.fixture(scope="session")
def whole_run(live: Live) -> WholeRun:
    name = "straight"
    with opened_browser() as browser:
        page = browser.new_page()
        page.set_default_timeout(60_000)
        _submit(page, live, name)
        flow_run_url = page.url
        page.goto("about:blank")  # the page would use the processor all the time, and the run needs it
        wait_until(lambda: whole_runs.status(live, name) not in {None, "created", "running"}, "the run to end", 500)
        assert whole_runs.status(live, name) == "done"
        page.goto(flow_run_url)
        expect(page.get_by_text("Completed")).not_to_have_count(0)
        expect(page.get_by_text("Running", exact=True)).to_have_count(0)
    return WholeRun(name, whole_runs.rows(live, name), whole_runs.texts(live, name))


def _submit(page: Page, live: Live, run: str) -> None:
    """Fill in the deployment's form as a person would."""
    open_prefect(page, live, "/deployments")
    page.get_by_role("link", name="co-evolve").first.wait_for()
    page.goto(f"{live.services.prefect_url}/deployments/deployment/{_deployment(live)}/run")
    boxes = page.locator("textarea")
    expect(boxes).to_have_count(4)  # run, preset_file, overrides, from_run; the preset is chosen from a list
    expect(page.get_by_text("Name of the run: at most 64 letters")).to_be_visible()
    boxes.nth(0).fill(run)
    boxes.nth(2).fill(json.dumps(whole_runs.OVERRIDES))
    page.get_by_role("button", name="Submit").click()
    page.locator('a[href*="/flow-run/"]').first.click()
    page.wait_for_url("**/flow-run/**", wait_until="commit")


def _deployment(live: Live) -> str:
    deployment: str = live.services.prefect.request("GET", "/deployments/name/co-evolve/co-evolve").json()["id"]
    return deployment


@pytest.fixture(scope="module")
def prefect(prefect_url: str) -> Iterator[SyncPrefectClient]:
    """The server's client; a flow that is called in the test's own process reports to this server."""
    with (
        temporary_settings(
            {
                PREFECT_API_URL: f"{prefect_url}/api",
                PREFECT_API_AUTH_STRING: AUTH,
                PREFECT_LOGGING_TO_API_ENABLED: False,  # its thread would live longer than the server
            }
        ),
        get_client(sync_client=True) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def loop_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with the run of `stored_runs.store_loop`. Copy it before you change it."""
    return _stored(tmp_path_factory.mktemp("loop"), store_loop)


@pytest.fixture(scope="session")
def rounds_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with the run of `stored_runs.store_rounds`. Copy it before you change it."""
    return _stored(tmp_path_factory.mktemp("rounds"), store_rounds)


def _stored(folder: Path, store_run: Callable[[Store, Home], None]) -> Home:
    store = open_store(f"sqlite:///{folder / 'coevo.db'}", create=True)
    store_run(store, Home(folder))
    store.close()
    return Home(folder)
