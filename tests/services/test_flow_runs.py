"""Runs that were accepted and are not in the store yet are listed; Prefect's server is real and has no worker."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from prefect_server import post, prefect_at
from typer.testing import CliRunner

from core.settings.parsing import load_config
from orchestrator.cli import app as cli
from services.api.app import PREFIX, create_app
from storage import queries
from storage.rows import RunStatus
from storage.session import Store
from tests.api_server import served

PRESETS = Path(__file__).parents[2] / "deploy" / "runs"


@pytest.fixture
def store(sqlite: Store) -> Store:
    return sqlite


@pytest.fixture
def api(store: Store, tmp_path: Path, prefect_url: str) -> TestClient:
    return TestClient(
        create_app(store, tmp_path, ask_for_keys=False, prefect=prefect_at(prefect_url), presets=PRESETS),
        "http://localhost",
    )


@pytest.fixture
def name() -> str:
    """The name of a run that Prefect does not know yet."""
    return f"run-{uuid4().hex[:8]}"


def start_run(api: TestClient, name: str) -> str:
    """Ask the API to start a run; returns the id of its flow run."""
    response = api.post(f"{PREFIX}/runs", json={"name": name, "preset": "demo"})
    assert response.status_code == 202, response.text
    return str(response.json()["flow_run"])


def move_to_states(prefect_url: str, flow_run: str, *states: str, message: str | None = None) -> None:
    """Move a flow run through these states, as a flow runner does; the last state has the message."""
    for state in states:
        body = {"type": state, "message": message if state == states[-1] else None}
        assert post(prefect_url, f"/flow_runs/{flow_run}/set_state", state=body)["status"] == "ACCEPT"


def store_run(store: Store, name: str, status: RunStatus) -> None:
    """Store the run with this status, as a flow does when it has begun."""
    with store.write() as session:
        queries.runs.create_run(session, name=name, config=load_config(PRESETS / "demo.toml", {}), preset="demo")
        queries.runs.set_run_status(session, name, status)


def listed(api: TestClient, name: str) -> dict[str, Any] | None:
    """The run's entry in the list of flow runs; checks that the list of this run alone has the same entries."""
    everything = [row for row in api.get(f"{PREFIX}/flow-runs").json() if row["run"] == name]
    assert api.get(f"{PREFIX}/flow-runs", params={"run": name}).json() == everything
    return dict(everything[0]) if everything else None


def test_a_run_is_listed_from_its_acceptance_until_its_flow_has_ended(
    api: TestClient, store: Store, prefect_url: str, name: str
) -> None:
    assert listed(api, name) is None
    flow_run = start_run(api, name)
    waiting = listed(api, name)
    assert waiting is not None
    assert datetime.fromisoformat(waiting.pop("since")).utcoffset() is not None
    assert waiting == {
        "run": name,
        "flow_run": flow_run,
        "state": "SCHEDULED",
        "name": "Scheduled",
        "message": None,
        "begun": False,
        "url": f"{prefect_url}/runs/flow-run/{flow_run}",
    }
    move_to_states(prefect_url, flow_run, "PENDING", "RUNNING")
    at_work = listed(api, name)
    assert at_work is not None
    assert (at_work["state"], at_work["begun"]) == ("RUNNING", False)  # the run is not in the store yet
    store_run(store, name, "running")
    assert (listed(api, name) or {})["begun"] is True
    move_to_states(prefect_url, flow_run, "COMPLETED")
    assert listed(api, name) is None


def test_a_run_that_failed_before_it_began_is_listed_with_its_reason(
    api: TestClient, prefect_url: str, name: str
) -> None:
    why = "Flow run encountered an exception: ConfigError: serving.applications: vllm-cpu needs vLLM"
    move_to_states(prefect_url, start_run(api, name), "PENDING", "RUNNING", "FAILED", message=why)
    failed = listed(api, name)
    assert failed is not None
    assert (failed["state"], failed["message"], failed["begun"]) == ("FAILED", why, False)
    again = start_run(api, name)
    assert (listed(api, name) or {})["flow_run"] == again  # the newest flow run is listed


def test_a_stored_run_that_waits_to_be_resumed_is_listed(
    api: TestClient, store: Store, prefect_url: str, name: str
) -> None:
    move_to_states(prefect_url, start_run(api, name), "PENDING", "RUNNING")
    store_run(store, name, "cancelled")
    flow_run = (listed(api, name) or {})["flow_run"]
    move_to_states(prefect_url, flow_run, "CANCELLING", "CANCELLED")
    resumed = api.post(f"{PREFIX}/runs/{name}/resume", json={}).json()["flow_run"]
    waiting = listed(api, name)
    assert waiting is not None
    assert (waiting["flow_run"], waiting["state"], waiting["begun"]) == (resumed, "SCHEDULED", False)


def test_without_prefect_no_flow_runs_are_listed(store: Store, tmp_path: Path) -> None:
    alone = TestClient(create_app(store, tmp_path, ask_for_keys=False), "http://localhost")
    assert alone.get(f"{PREFIX}/flow-runs").json() == []
    silent = create_app(store, tmp_path, ask_for_keys=False, prefect=prefect_at("http://127.0.0.1:9"))
    refused = TestClient(silent, "http://localhost").get(f"{PREFIX}/flow-runs")
    assert (refused.status_code, "Prefect did not answer" in refused.json()["detail"]) == (503, True)


def test_the_command_that_lists_runs_shows_runs_that_have_not_begun(
    api: TestClient, prefect_url: str, name: str
) -> None:
    move_to_states(prefect_url, start_run(api, name), "PENDING", "RUNNING", "FAILED", message="no [red]vLLM[/]")
    waiting = f"{name}-waits"
    start_run(api, waiting)
    with served(api.app) as url:
        shown = CliRunner().invoke(cli, ["runs", "list", "--url", url])
    assert shown.exit_code == 0, shown.output
    assert f"run {name}: failed before it began: no [red]vLLM[/]; {prefect_url}/runs/" in shown.stdout
    assert f"run {waiting}: not begun, scheduled in Prefect; {prefect_url}/runs/" in shown.stdout
