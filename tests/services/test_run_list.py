"""The list of runs also has those that only Prefect knows. Prefect's server is real and has no worker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from local_api import local_api
from prefect_server import post, prefect_at
from run_requests import api_with_prefect, move_to, send, store_run, unknown_name

from services.api import run_views
from services.api.app import PREFIX
from services.prefect import client as prefect
from services.prefect.flow_runs import FlowRun
from storage import queries
from storage.session import Store


@pytest.fixture
def store(sqlite: Store) -> Store:
    return sqlite


@pytest.fixture
def api(store: Store, tmp_path: Path, prefect_url: str, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """An API that asks Prefect for each request, since the tests change the states of flow runs without it."""
    monkeypatch.setattr(prefect, "_FRESH_S", 0.0)
    return api_with_prefect(store, tmp_path, prefect_url)


@pytest.fixture
def name() -> str:
    return unknown_name()


def start_run(api: TestClient, name: str) -> str:
    """Ask the API to start a run; returns the id of its flow run."""
    return str(send(api, "/runs", name=name, preset="demo")["flow_run"])


def listed(api: TestClient, name: str) -> dict[str, Any] | None:
    """The run's entry in the list of runs; checks that the run's own route says the same. Only that route has a flow
    run that is done, the settings, and what a fork inherits."""
    [entry] = [row for row in api.get(f"{PREFIX}/runs").json()["items"] if row["name"] == name] or [None]
    own = api.get(f"{PREFIX}/runs/{name}")
    assert own.status_code == (404 if entry is None else 200)
    if entry is not None:
        config, flow_run = own.json()["config"], entry["flow_run"] or own.json()["flow_run"]
        assert own.json() == {**entry, "config": config, "flow_run": flow_run, "inherited": []}
        assert (config is None) == (entry["seed"] is None)
    return entry


def test_a_run_is_listed_from_its_acceptance_on(api: TestClient, store: Store, prefect_url: str, name: str) -> None:
    assert listed(api, name) is None
    flow_run = start_run(api, name)
    waiting = listed(api, name)
    assert waiting is not None
    assert datetime.fromisoformat(waiting.pop("since")).utcoffset() is not None
    assert datetime.fromisoformat(waiting.pop("created_at")).utcoffset() is not None
    reason = "Prefect has accepted it; no flow runner has taken it yet"
    known = {"name": name, "preset": "demo", "state": "waiting", "reason": reason, "active": True}
    known |= {"flow_run": f"{prefect_url}/runs/flow-run/{flow_run}", "open_alerts": {"critical": 0, "warning": 0}}
    assert {key: known_value for key, known_value in waiting.items() if known_value not in (None, [], "")} == known
    move_to(prefect_url, flow_run, "PENDING", "RUNNING")
    assert (listed(api, name) or {})["state"] == "preparing"
    store_run(store, name, "running")
    with store.write() as session:
        queries.run_leases.claim_run(session, run=name, owner="me", lease_seconds=600)
        queries.ledger.claim_stage(session, run=name, iteration=0, stage="evaluate", owner="me", lease_seconds=600)
    at_work = listed(api, name) or {}
    assert (at_work["state"], at_work["reason"], at_work["seed"]) == ("running", "iteration 0, evaluate", "20260")
    assert at_work["flow_run"] == waiting["flow_run"]
    move_to(prefect_url, flow_run, "COMPLETED")
    with store.write() as session:
        queries.run_leases.release_run(session, run=name, owner="me")
        queries.runs.set_run_status(session, name, "done")
    done = listed(api, name) or {}
    assert (done["state"], done["active"], done["flow_run"]) == ("done", False, None)
    assert api.get(f"{PREFIX}/runs/{name}").json()["flow_run"] == waiting["flow_run"]


def test_a_run_that_failed_before_it_began_is_listed_with_its_reason(
    api: TestClient, prefect_url: str, name: str
) -> None:
    why = "serving.applications: vllm-cpu needs vLLM"
    message = f"Flow run encountered an exception: ConfigError: {why}"
    move_to(prefect_url, start_run(api, name), "PENDING", "RUNNING", "FAILED", message=message)
    failed = listed(api, name) or {}
    assert (failed["state"], failed["reason"]) == ("failed", f"failed before its first stage began: {why}")
    start_run(api, name)
    assert (listed(api, name) or {})["state"] == "waiting"  # the newest flow run counts


def test_a_run_that_is_cancelled_before_it_began_stays_in_the_list(api: TestClient, name: str) -> None:
    start_run(api, name)
    [answer] = send(api, f"/runs/{name}/cancel")
    cancelled = listed(api, name) or {}
    assert (cancelled["state"], cancelled["active"], answer["state"]) == ("cancelled", False, "cancelled")


def test_a_stored_run_that_waits_to_be_resumed_is_waiting(
    api: TestClient, store: Store, prefect_url: str, name: str
) -> None:
    flow_run = start_run(api, name)
    move_to(prefect_url, flow_run, "PENDING", "RUNNING")
    store_run(store, name, "cancelled")
    move_to(prefect_url, flow_run, "CANCELLING")
    ending = listed(api, name) or {}
    assert (ending["state"], ending["active"]) == ("cancelled", True)  # until its flow run has ended
    move_to(prefect_url, flow_run, "CANCELLED")
    assert (listed(api, name) or {})["active"] is False
    answer = send(api, f"/runs/{name}/resume")
    waiting = listed(api, name) or {}
    assert (answer["state"], answer["reason"]) == (waiting["state"], waiting["reason"])
    assert waiting["state"] == "waiting"


def test_pages_have_stored_runs_and_those_that_only_prefect_knows_in_one_order(
    api: TestClient, store: Store, name: str
) -> None:
    expected = []
    for i in range(4):
        expected.insert(0, f"{name}-{i}")
        if i % 2:
            store_run(store, expected[0], "done")
        else:
            start_run(api, expected[0])
    shown, after, pages = list[str](), None, 0
    while pages == 0 or after is not None:
        page = api.get(f"{PREFIX}/runs", params={"limit": 3, **({"after": after} if after else {})}).json()
        shown += [item["name"] for item in page["items"]]
        after, pages = page["next"], pages + 1
    assert [run for run in shown if run.startswith(name)] == expected
    assert len(shown) == len(set(shown))
    assert pages > 1


def test_a_flow_run_whose_parameters_name_no_run_is_not_listed(api: TestClient, prefect_url: str, name: str) -> None:
    """Someone may start a flow in Prefect itself, with any parameters."""
    deployment = prefect_at(prefect_url).request("GET", "/deployments/name/co-evolve/co-evolve", None, 30).json()["id"]
    for run in (f"{name}/odd", {"a": name}):
        body: dict[str, Any] = {"parameters": {"run": run, "preset": [name]}, "enforce_parameter_schema": False}
        post(prefect_url, f"/deployments/{deployment}/create_flow_run", **body)
    assert not [run for run in api.get(f"{PREFIX}/runs").json()["items"] if name in run["name"]]


def test_a_request_of_which_no_run_came_is_listed_for_a_day(store: Store) -> None:
    now = datetime.now(UTC)
    hours = {"waits": ("SCHEDULED", 72), "new": ("FAILED", 23), "cancelled": ("CANCELLED", 25), "old": ("FAILED", 25)}
    flow_runs = {
        run: FlowRun("id", run, "demo", state, True, state, None, now - timedelta(hours=age), now, None)
        for run, (state, age) in {**hours, "stored": ("FAILED", 25)}.items()
    }
    store_run(store, "stored", "done")
    with store.read() as session:
        assert {*run_views.only_in_prefect(session, prefect.KnownFlowRuns(flow_runs))} == {"waits", "new"}
        assert {*run_views.all_states(session, prefect.KnownFlowRuns(flow_runs))} == {"waits", "new", "stored"}


def test_without_prefect_the_list_has_the_stored_runs(store: Store, tmp_path: Path) -> None:
    store_run(store, "stored", "done")
    page = local_api(store, tmp_path).get(f"{PREFIX}/runs").json()
    assert ([item["name"] for item in page["items"]], page["problem"]) == (["stored"], None)
    silent = api_with_prefect(store, tmp_path, "http://127.0.0.1:9")
    without_answer = silent.get(f"{PREFIX}/runs").json()
    assert without_answer["items"] == page["items"]
    assert "Prefect did not answer" in without_answer["problem"]


def test_views_share_an_answer_of_prefect_until_something_is_started_here(prefect_url: str, name: str) -> None:
    flow_runs = prefect.Prefect(prefect_at(prefect_url))
    known = flow_runs.newest()
    assert flow_runs.newest() is known
    flow_runs.start("co_evolve", name, {"preset": "demo"}, [])
    assert name in flow_runs.newest().by_run
