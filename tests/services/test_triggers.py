"""Runs triggered over REST; Prefect's server is real and has no worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from local_api import local_api
from prefect_server import post
from run_requests import PRESETS, api_with_prefect, move_to, send, store_run, unknown_name

from orchestrator.flows import Answer
from services.api.app import PREFIX
from services.prefect.server import PrefectServer
from storage import queries
from storage.session import Store


@pytest.fixture
def store(sqlite: Store) -> Store:
    return sqlite


@pytest.fixture
def api(store: Store, tmp_path: Path, prefect_url: str) -> TestClient:
    return api_with_prefect(store, tmp_path, prefect_url)


@pytest.fixture
def name() -> str:
    return unknown_name()


def flow_run(prefect_url: str, started: dict[str, str]) -> dict[str, Any]:
    [row] = post(prefect_url, "/flow_runs/filter", flow_runs={"id": {"any_": [started["flow_run"]]}})
    return dict(row)


def test_a_run_is_started_as_a_flow_run_of_its_deployment(api: TestClient, prefect_url: str, name: str) -> None:
    started = send(api, "/runs", name=name, preset="demo", iterations=2, overrides={"dataset.band": [0.3, 0.8]})
    assert (started["run"], started["state"]) == (name, "waiting")
    assert started["url"] == f"{prefect_url}/runs/flow-run/{started['flow_run']}"
    row = flow_run(prefect_url, started)
    assert (row["name"], set(row["tags"]), row["state_type"]) == (name, {"coevo", f"run:{name}"}, "SCHEDULED")
    parameters = {"run": name, "preset": "demo", "iterations": 2, "overrides": {"dataset.band": [0.3, 0.8]}}
    assert row["parameters"] == parameters
    again = send(api, "/runs", 409, name=name, preset="demo")
    assert again == f"run {name}: expected no active flow run, but a flow run is SCHEDULED: {started['url']}"


def test_a_preset_with_prompts_is_run_by_the_self_train_flow(api: TestClient, prefect_url: str, name: str) -> None:
    row = flow_run(prefect_url, send(api, "/runs", name=name, preset="micro", flow="self_train"))
    [flow] = post(prefect_url, "/flows/filter", flow_runs={"id": {"any_": [row["id"]]}})
    assert (flow["name"], row["parameters"]["preset"]) == ("self-train", "micro")


def test_one_of_twenty_simultaneous_requests_starts_the_run(api: TestClient, name: str) -> None:
    def status(_number: int) -> int:
        """A busy Prefect is a 503, after which a client may send the request again."""
        tries = (api.post(f"{PREFIX}/runs", json={"name": name, "preset": "demo"}).status_code for _ in range(20))
        return next(status for status in tries if status != 503)

    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(status, range(20)))
    assert sorted(answers) == [202, *[409] * 19]


def test_a_scheduled_run_can_be_cancelled_and_started_again(
    api: TestClient, prefect_url: str, store: Store, name: str
) -> None:
    first = send(api, "/runs", name=name, preset="demo")
    [ended] = send(api, f"/runs/{name}/cancel", why="too early")
    assert (ended["flow_run"], ended["state"]) == (first["flow_run"], "cancelled")
    assert flow_run(prefect_url, first)["state_type"] == "CANCELLED"
    second = send(api, "/runs", name=name, preset="demo")
    assert second["flow_run"] != first["flow_run"]
    send(api, f"/runs/{name}/cancel")
    store_run(store, name, "cancelled")
    third = send(api, f"/runs/{name}/resume", iterations=5)
    assert flow_run(prefect_url, third)["parameters"] == {"run": name, "preset": "existing run", "iterations": 5}
    assert "expected no active flow run" in send(api, f"/runs/{name}/resume", 409)
    send(api, f"/runs/{name}/cancel")
    refused = f"run {name}: expected an active flow run, there is none; it is cancelled: cancelled"
    assert send(api, f"/runs/{name}/cancel", 409) == refused


def test_cancelling_a_running_run_leaves_its_worker_to_end_it(api: TestClient, prefect_url: str, name: str) -> None:
    started = send(api, "/runs", name=name, preset="demo")
    move_to(prefect_url, started["flow_run"], "PENDING", "RUNNING")
    assert "a flow run is RUNNING" in send(api, "/runs", 409, name=name, preset="demo")
    [ended] = send(api, f"/runs/{name}/cancel", why="enough")
    state = flow_run(prefect_url, started)["state"]
    assert (ended["state"], state["type"], state["message"]) == ("cancelled", "CANCELLING", "enough")
    [again] = send(api, f"/runs/{name}/cancel")
    assert again["state"] == "cancelled"
    assert "a flow run is CANCELLING" in send(api, "/runs", 409, name=name, preset="demo")


def test_a_run_in_a_terminal_cannot_be_cancelled_while_its_process_works(
    api: TestClient, prefect_url: str, store: Store, name: str
) -> None:
    """`coevo run` also has flow runs in Prefect, without a deployment; one whose process was killed stays RUNNING."""
    store_run(store, name, "running")
    with store.write() as session:
        queries.run_leases.claim_run(session, run=name, owner="host:7:0", lease_seconds=60)
    [flow] = post(prefect_url, "/flows/filter", flows={"name": {"any_": ["co-evolve"]}})
    running = {"type": "RUNNING"}
    body = {"flow_id": flow["id"], "name": name, "parameters": {"run": name, "preset": "demo"}, "state": running}
    post(prefect_url, "/flow_runs/", **body)
    refused = send(api, f"/runs/{name}/cancel", 409)
    how = "stop it with Ctrl-C in its terminal, or with `kill -INT 7` on host"
    assert refused == f"run {name}: process 7 on host works on it, started by `coevo run`: {how}"
    with store.write() as session:
        queries.run_leases.release_run(session, run=name, owner="host:7:0")
    assert [ended["state"] for ended in send(api, f"/runs/{name}/cancel")] == ["interrupted"]
    send(api, f"/runs/{name}/resume")


def test_a_run_that_a_process_works_on_is_refused_though_prefect_has_no_flow_run(
    api: TestClient, store: Store, name: str
) -> None:
    store_run(store, name, "running")
    with store.write() as session:
        queries.run_leases.claim_run(session, run=name, owner="node-1:7:0", lease_seconds=60)
    for path, body in ((f"/runs/{name}/resume", {}), ("/runs", {"name": name, "preset": "demo"})):
        refused = f"run {name}: process 7 on node-1 works on it; if the process has died,"
        assert send(api, path, 409, **body).startswith(refused)


def test_a_paused_run_gets_a_person_s_decision(api: TestClient, prefect_url: str, store: Store, name: str) -> None:
    store_run(store, name, "paused")
    refused = send(api, f"/runs/{name}/decision", 409, decision="stop")
    waits_for_none = f"run {name}: it does not wait for a decision; "
    assert refused.startswith(f"{waits_for_none}it is interrupted: no process has worked on it")
    started = send(api, f"/runs/{name}/resume")
    keys = _pause(prefect_url, started)
    with store.write() as session:
        queries.run_leases.claim_run(session, run=name, owner="host:7:0", lease_seconds=600)
    assert "a flow run is PAUSED" in send(api, f"/runs/{name}/resume", 409)
    send(api, f"/runs/{name}/decision", 422, decision="perhaps")
    answered = send(api, f"/runs/{name}/decision", decision="roll back", note="label accuracy fell")
    assert (answered["flow_run"], answered["state"]) == (started["flow_run"], "running")
    wanted = {"prefix": keys["response"], "limit": 1, "exclude_keys": []}
    [stored] = post(prefect_url, f"/flow_runs/{started['flow_run']}/input/filter", **wanted)
    answer = Answer.model_validate_json(stored["value"])
    assert (answer.decision, answer.note) == ("roll back", "label accuracy fell")


def _pause(prefect_url: str, started: dict[str, str]) -> dict[str, str]:
    """Pause a flow run like `pause_flow_run`, which waits for an `Answer`; returns the keys of its input."""
    keys = {"schema": "ask-schema", "response": "ask-response", "description": "ask-description"}
    schema = json.dumps(Answer.model_json_schema())
    path = f"/flow_runs/{started['flow_run']}/input"
    post(prefect_url, path, key=keys["schema"], value=schema)
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    details = {"pause_timeout": until, "pause_key": "ask", "run_input_keyset": keys}
    move_to(prefect_url, started["flow_run"], "PENDING", "RUNNING", "PAUSED", state_details=details)
    return keys


def test_a_run_that_has_ended_or_has_another_configuration_is_not_continued(
    api: TestClient, store: Store, name: str
) -> None:
    store_run(store, name, "done", iterations=2)
    ended = f"run {name}: expected a run that can continue, but it is done, with 2 iterations"
    assert send(api, "/runs", 409, name=name, preset="demo", iterations=2) == ended
    assert send(api, f"/runs/{name}/resume", 409) == ended
    fewer = f"expected at least 2, got 1; {name} has 2 iterations, and the number can only grow"
    assert fewer in send(api, f"/runs/{name}/resume", 422, iterations=1)
    assert fewer in send(api, "/runs", 422, name=name, preset="demo", iterations=1)
    assert "exists with preset demo, got micro" in send(api, "/runs", 409, name=name, preset="micro")
    other = send(api, "/runs", 409, name=name, preset="demo", iterations=3, overrides={"dataset.candidates": 7})
    assert f"run {name}: exists with another configuration: dataset.candidates is" in other
    send(api, "/runs", name=name, preset="demo", iterations=3)
    with store.write() as session:
        queries.runs.set_run_status(session, name, "stopped")
    assert "it is stopped" in send(api, f"/runs/{name}/resume", 409, iterations=9)
    assert send(api, "/runs/nobody/resume", 404).startswith("run nobody: no such run")
    assert send(api, "/runs/nobody/cancel", 404).startswith("run nobody: no such run")


def test_the_page_of_a_run_has_its_last_flow_run_also_if_that_is_done(
    api: TestClient, prefect_url: str, store: Store, name: str
) -> None:
    def page() -> Any:
        return api.get(f"{PREFIX}/runs/{name}").json()["flow_run"]

    store_run(store, name, "done")
    assert page() is None  # it ran in another installation
    first = send(api, f"/runs/{name}/resume", iterations=5)
    assert page() == first["url"]
    move_to(prefect_url, first["flow_run"], "PENDING", "RUNNING", "FAILED")
    assert page() == first["url"]
    second = send(api, f"/runs/{name}/resume", iterations=5)
    move_to(prefect_url, second["flow_run"], "PENDING", "RUNNING", "COMPLETED")
    assert page() == second["url"]


def test_a_setting_that_is_a_word_can_be_overridden(api: TestClient, prefect_url: str, name: str) -> None:
    overrides = {"solver.reward.type": "evol_rl", "evaluation.benchmark": "micro", "audit.oracle": "none"}
    started = send(api, "/runs", name=name, preset="micro", overrides=overrides)
    assert flow_run(prefect_url, started)["parameters"]["overrides"] == overrides


def test_presets_are_listed_with_descriptions(api: TestClient) -> None:
    descriptions = {preset["name"]: preset["about"] for preset in api.get(f"{PREFIX}/presets").json()}
    assert descriptions.keys() == {path.stem for path in PRESETS.glob("*.toml")}
    assert descriptions["demo"].startswith("The demo: three iterations of R-Zero")


def test_a_preset_that_cannot_be_read_does_not_hide_the_others(store: Store, tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text("# It is good.\n# Very.\nseed = 1\n")
    (tmp_path / "bad.toml").write_bytes(b"# \xff\n")
    (tmp_path / "folder.toml").mkdir()
    presets = local_api(store, tmp_path, presets=tmp_path).get(f"{PREFIX}/presets").json()
    assert {preset["name"]: preset["about"] for preset in presets} == {"good": "It is good.", "bad": "", "folder": ""}


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (lambda _url: None, "this API has no Prefect server"),
        (lambda _url: PrefectServer("http://127.0.0.1:9"), "Prefect did not answer"),
        (lambda url: PrefectServer(url, "coevo:another"), "PREFECT_API_AUTH_STRING of this API differs"),
    ],
)
def test_without_prefect_no_run_can_be_started_or_cancelled(
    store: Store,
    tmp_path: Path,
    prefect_url: str,
    name: str,
    server: Callable[[str], PrefectServer | None],
    words: str,
) -> None:
    api = local_api(store, tmp_path, prefect=server(prefect_url), presets=PRESETS)
    assert words in send(api, "/runs", 503, name=name, preset="demo")
    assert words in send(api, f"/runs/{name}/cancel", 503)
