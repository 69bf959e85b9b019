"""What was accepted and is not in the store yet can be seen, on a real Prefect server whose deployments nobody works
off."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from prefect_server import known, post
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
        create_app(store, tmp_path, ask_for_keys=False, prefect=known(prefect_url), presets=PRESETS), "http://localhost"
    )


@pytest.fixture
def name() -> str:
    """A run that Prefect has not heard of yet."""
    return f"run-{uuid4().hex[:8]}"


def started(api: TestClient, name: str) -> str:
    """The flow run of a run that was accepted."""
    answer = api.post(f"{PREFIX}/runs", json={"name": name, "preset": "demo"})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["flow_run"])


def put(prefect_url: str, flow_run: str, *states: str, message: str | None = None) -> None:
    """Have a flow run go through states, as a flow runner does; the last one with a message."""
    for state in states:
        body = {"type": state, "message": message if state == states[-1] else None}
        assert post(prefect_url, f"/flow_runs/{flow_run}/set_state", state=body)["status"] == "ACCEPT"


def mark(store: Store, name: str, status: RunStatus) -> None:
    """What a flow does once it has begun."""
    with store.write() as session:
        queries.runs.create_run(session, name=name, config=load_config(PRESETS / "demo.toml", {}), preset="demo")
        queries.runs.set_run_status(session, name, status)


def seen(api: TestClient, name: str) -> dict[str, Any] | None:
    """As it is listed among all, and by itself."""
    everything = [each for each in api.get(f"{PREFIX}/flow-runs").json() if each["run"] == name]
    assert api.get(f"{PREFIX}/flow-runs", params={"run": name}).json() == everything
    return dict(everything[0]) if everything else None


def test_a_run_is_seen_from_its_acceptance_until_it_has_begun(
    api: TestClient, store: Store, prefect_url: str, name: str
) -> None:
    assert seen(api, name) is None
    flow_run = started(api, name)
    waiting = seen(api, name)
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
    put(prefect_url, flow_run, "PENDING", "RUNNING")
    at_work = seen(api, name)
    assert at_work is not None
    assert (at_work["state"], at_work["begun"]) == ("RUNNING", False)  # not in the store yet
    mark(store, name, "running")
    assert (seen(api, name) or {})["begun"] is True
    put(prefect_url, flow_run, "COMPLETED")
    assert seen(api, name) is None


def test_a_run_that_failed_before_it_began_is_seen_with_its_reason(
    api: TestClient, prefect_url: str, name: str
) -> None:
    why = "Flow run encountered an exception: ConfigError: serving.applications: vllm-cpu needs vLLM"
    put(prefect_url, started(api, name), "PENDING", "RUNNING", "FAILED", message=why)
    failed = seen(api, name)
    assert failed is not None
    assert (failed["state"], failed["message"], failed["begun"]) == ("FAILED", why, False)
    again = started(api, name)
    assert (seen(api, name) or {})["flow_run"] == again  # the newest


def test_of_a_run_in_the_store_what_waits_to_go_on_is_seen(
    api: TestClient, store: Store, prefect_url: str, name: str
) -> None:
    put(prefect_url, started(api, name), "PENDING", "RUNNING")
    mark(store, name, "cancelled")
    flow_run = (seen(api, name) or {})["flow_run"]
    put(prefect_url, flow_run, "CANCELLING", "CANCELLED")
    resumed = api.post(f"{PREFIX}/runs/{name}/resume", json={}).json()["flow_run"]
    waiting = seen(api, name)
    assert waiting is not None
    assert (waiting["flow_run"], waiting["state"], waiting["begun"]) == (resumed, "SCHEDULED", False)


def test_without_prefect_nothing_waits(store: Store, tmp_path: Path) -> None:
    alone = TestClient(create_app(store, tmp_path, ask_for_keys=False), "http://localhost")
    assert alone.get(f"{PREFIX}/flow-runs").json() == []
    silent = create_app(store, tmp_path, ask_for_keys=False, prefect=known("http://127.0.0.1:9"))
    refused = TestClient(silent, "http://localhost").get(f"{PREFIX}/flow-runs")
    assert (refused.status_code, "Prefect did not answer" in refused.json()["detail"]) == (503, True)


def test_the_command_that_lists_runs_has_them_too(api: TestClient, prefect_url: str, name: str) -> None:
    put(prefect_url, started(api, name), "PENDING", "RUNNING", "FAILED", message="no [red]vLLM[/]")
    waiting = f"{name}-waits"
    started(api, waiting)
    with served(api.app) as url:
        shown = CliRunner().invoke(cli, ["runs", "list", "--url", url])
    assert shown.exit_code == 0, shown.output
    assert f"run {name}: failed before it began: no [red]vLLM[/]; {prefect_url}/runs/" in shown.stdout
    assert f"run {waiting}: not begun, scheduled in Prefect; {prefect_url}/runs/" in shown.stdout
