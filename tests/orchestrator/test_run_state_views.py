"""Every view of runs shows the same state and reason of a run, whichever state it is in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from playwright.sync_api import Page, expect
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from core.processes import identity as processes
from orchestrator.cli import app as cli
from orchestrator.installation.home import PRESETS, Home, Services
from services.api.app import create_app
from services.api.installation import Installation
from services.client import Client
from services.run_report.figures import figures
from services.views.states import MEANINGS
from storage.session import Store, open_store
from tests.api_server import served
from tests.browsing import without_complaints
from tests.run_in_each_state import REASONS, STATES, store_each_state
from tests.services.prefect_server import AUTH, post, prefect_at

# Runs that only Prefect knows: the states that their flow runs go through after they were accepted.
IN_PREFECT = {
    "only-accepted": ("waiting", []),
    "begins": ("preparing", ["PENDING", "RUNNING"]),
    "never-began": ("failed", ["PENDING", "RUNNING", "FAILED"]),
}
ALL = {**STATES, **{name: state for name, (state, _) in IN_PREFECT.items()}}
ALL_REASONS = {
    **REASONS,
    "only-accepted": "Prefect has accepted it; no flow runner has taken it .+",
    "begins": "its flow has begun, and its first stage has not",
    "never-began": r"failed before its first stage began: no \[red\]vLLM\[/\]",
}


# The name of each card's run -> its state and reason.
_CARDS = """Object.fromEntries([...document.querySelectorAll("article.run")].map((card) => [
  card.querySelector("h2 a").textContent,
  [card.querySelector(".status").textContent, card.querySelector(".reason p").textContent],
]))"""


@dataclass
class Views:
    url: str


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory, prefect_url: str) -> Iterator[Views]:
    """A home with a run in each state, and its API."""
    folder = tmp_path_factory.mktemp("home")
    home = Home(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("COEVO_DATABASE", "COEVO_RAY_ADDRESS", "COEVO_API_URL", "COEVO_API_KEY"):
            patch.delenv(name, raising=False)
        patch.setenv("COEVO_HOME", str(folder))
        patch.setenv("COLUMNS", "400")  # so that no cell of a table is cut off or wrapped
        store = open_store(home.database, create=True)
        store_each_state(store)
        prefect = prefect_at(prefect_url)
        app = create_app(
            store, folder / "exports", ask_for_keys=False, installation=Installation(prefect=prefect, presets=PRESETS)
        )
        with served(app) as url:
            for name, (_, states) in IN_PREFECT.items():
                _accept(url, prefect_url, name, states)
            me = os.getpid()
            process = {me: ("api", processes.started(me))}
            home.save_services(Services("", "", "", prefect_url, "secret", process, url, AUTH))
            yield Views(url)
        store.close()


def _accept(url: str, prefect_url: str, name: str, states: list[str]) -> None:
    flow_run = Client(url).send("POST", "/runs", json={"name": name, "preset": "demo"})["flow_run"]
    for state in states:
        message = "no [red]vLLM[/]" if state == "FAILED" else None
        post(prefect_url, f"/flow_runs/{flow_run}/set_state", state={"type": state, "message": message})


def test_every_state_has_a_run() -> None:
    assert {*ALL.values()} == {*MEANINGS}


def test_rest_lists_each_run_with_its_state_and_reason(views: Views) -> None:
    runs = {run["name"]: run for run in Client(views.url).items("/runs") if run["name"] in ALL}
    assert {name: run["state"] for name, run in runs.items()} == ALL
    for name, run in runs.items():
        assert re.fullmatch(ALL_REASONS[name], run["reason"]), (name, run["reason"])
        own = Client(views.url).get(f"/runs/{name}")
        assert {field: own[field] for field in ("state", "since", "active")}.items() <= run.items()


@pytest.mark.parametrize("command", [["status"], ["runs", "list"]])
def test_commands_show_each_run_with_its_state_and_reason(views: Views, command: list[str]) -> None:
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.split() and line.split()[0] in ALL}
    # "running" is also a training in the table of the worker pool, which comes later.
    assert rows.keys() >= ALL.keys() - {"running", "queued"}
    for name, state in ALL.items():
        pattern = rf"^ +{name} +{state.replace('_', ' ')} +\d{{4}}-.* {ALL_REASONS[name]} *$"
        assert re.search(pattern, result.stdout, re.MULTILINE), (name, rows.get(name))


def test_the_figures_of_each_run_have_its_state_and_reason(sqlite: Store) -> None:
    store_each_state(sqlite)
    for name, state in STATES.items():
        shown = figures(sqlite, name)
        assert shown["state"] == state
        assert re.fullmatch(REASONS[name], shown["reason"]), (name, shown["reason"])


def test_prometheus_counts_the_states_and_has_that_of_each_stored_run(views: Views) -> None:
    text = httpx.get(f"{views.url}/metrics", trust_env=False).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    states = {s.labels["run"]: s.labels["state"] for s in samples if s.name == "coevo_run_state" and s.value == 1}
    assert states == STATES
    counts = {s.labels["state"]: s.value for s in samples if s.name == "coevo_runs"}
    assert counts.keys() == MEANINGS.keys()
    # The Prefect server may have flow runs of other tests.
    assert all(counts[state] >= [*ALL.values()].count(state) for state in MEANINGS)


def test_the_list_and_the_page_of_each_run_show_its_state_and_reason(views: Views, page: Page) -> None:
    shown = dict[str, list[str]]()
    with without_complaints(page):
        page.goto(f"{views.url}/")
        while True:
            expect(page.locator("article.run").first).to_be_visible()
            shown |= page.evaluate(_CARDS)
            older = page.get_by_role("link", name="Older runs")
            if older.count() == 0:
                break
            with page.expect_response(lambda response: "/runs?" in response.url and "after=" in response.url):
                older.click()
    for name, state in ALL.items():
        assert shown[name][0] == state.replace("_", " ")
        assert _as_shown(name).search(shown[name][1]), shown[name]
    for name in ("only-accepted", "queued", "interrupted", "cancelled", "failed"):
        page.goto(f"{views.url}/runs/{name}")
        expect(page.locator(".title .status")).to_have_text(ALL[name].replace("_", " "))
        expect(page.locator(".now .reason p").first).to_have_text(_as_shown(name))


def _as_shown(name: str) -> re.Pattern[str]:
    """The reason with its code set in another font instead of between backticks."""
    return re.compile(f"^{ALL_REASONS[name].replace('`', '')}$")


def test_a_comparison_shows_the_states(views: Views, page: Page) -> None:
    with without_complaints(page):
        page.goto(f"{views.url}/compare?run=interrupted&run=done")
        states = page.get_by_role("region", name="Latest figures").locator("tbody .status")
        expect(states).to_have_text(["interrupted", "done"])
