"""Runs triggered over REST, on a real Prefect server whose deployments nobody works off."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from prefect_server import known, post

from core.settings.parsing import load_config
from orchestrator.flows import Answer
from orchestrator.readiness import refuse_unready
from services.api.app import PREFIX, create_app
from services.prefect_server import PrefectServer
from storage import queries
from storage.rows import RunStatus
from storage.session import Store

PRESETS = Path(__file__).parents[2] / "deploy" / "runs"


@pytest.fixture
def store(sqlite: Store) -> Store:
    """What is asked of the store here is a run and its stages."""
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


def send(api: TestClient, path: str, expected: int = 202, **body: Any) -> Any:
    response = api.post(PREFIX + path, json=body)
    assert response.status_code == expected, response.text
    return response.json() if expected == 202 else response.json()["detail"]


def made(store: Store, name: str, status: RunStatus, preset: str = "demo", **overrides: Any) -> None:
    """A run as its flow would have made it."""
    with store.write() as session:
        config = load_config(PRESETS / f"{preset}.toml", overrides)
        queries.runs.create_run(session, name=name, config=config, preset=preset)
        queries.runs.set_run_status(session, name, status)


def flow_run(prefect_url: str, found: dict[str, str]) -> dict[str, Any]:
    [row] = post(prefect_url, "/flow_runs/filter", flow_runs={"id": {"any_": [found["flow_run"]]}})
    return dict(row)


def test_a_run_is_started_by_its_deployment(api: TestClient, prefect_url: str, name: str) -> None:
    started = send(api, "/runs", name=name, preset="demo", iterations=2, overrides={"dataset.band": [0.3, 0.8]})
    assert started == {
        "run": name,
        "flow_run": started["flow_run"],
        "state": "SCHEDULED",
        "url": f"{prefect_url}/runs/flow-run/{started['flow_run']}",
    }
    row = flow_run(prefect_url, started)
    assert (row["name"], set(row["tags"]), row["state_type"]) == (name, {"coevo", name}, "SCHEDULED")
    given = {"run": name, "preset": "demo", "iterations": 2, "overrides": {"dataset.band": [0.3, 0.8]}}
    assert row["parameters"] == given
    again = send(api, "/runs", 409, name=name, preset="demo")
    assert again == f"run {name}: expected nobody at it; a flow run is SCHEDULED: {started['url']}"


def test_a_preset_with_prompts_is_run_by_the_other_flow(api: TestClient, prefect_url: str, name: str) -> None:
    row = flow_run(prefect_url, send(api, "/runs", name=name, preset="micro", flow="self_train"))
    [flow] = post(prefect_url, "/flows/filter", flow_runs={"id": {"any_": [row["id"]]}})
    assert (flow["name"], row["parameters"]["preset"]) == ("self-train", "micro")


def test_of_requests_at_once_one_starts_it(api: TestClient, name: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        body = {"name": name, "preset": "demo"}
        answers = list(threads.map(lambda _: api.post(f"{PREFIX}/runs", json=body).status_code, range(4)))
    assert sorted(answers) == [202, 409, 409, 409]


def test_what_waits_is_cancelled_and_started_anew(api: TestClient, prefect_url: str, store: Store, name: str) -> None:
    first = send(api, "/runs", name=name, preset="demo")
    [ended] = send(api, f"/runs/{name}/cancel", why="too early")
    assert (ended["flow_run"], ended["state"]) == (first["flow_run"], "CANCELLED")
    assert flow_run(prefect_url, first)["state_type"] == "CANCELLED"
    second = send(api, "/runs", name=name, preset="demo")
    assert second["flow_run"] != first["flow_run"]
    send(api, f"/runs/{name}/cancel")
    made(store, name, "cancelled")
    third = send(api, f"/runs/{name}/resume", iterations=5)
    assert flow_run(prefect_url, third)["parameters"] == {"run": name, "preset": "", "iterations": 5}
    assert "expected nobody at it" in send(api, f"/runs/{name}/resume", 409)
    send(api, f"/runs/{name}/cancel")
    assert send(api, f"/runs/{name}/cancel", 409) == f"run {name}: nobody is at it; it is cancelled"


def test_a_running_one_is_left_to_its_worker_to_end(api: TestClient, prefect_url: str, name: str) -> None:
    started = send(api, "/runs", name=name, preset="demo")
    _set(prefect_url, started, type="RUNNING")
    assert "a flow run is RUNNING" in send(api, "/runs", 409, name=name, preset="demo")
    [ended] = send(api, f"/runs/{name}/cancel", why="enough")
    state = flow_run(prefect_url, started)["state"]
    assert (ended["state"], state["type"], state["message"]) == ("CANCELLING", "CANCELLING", "enough")
    [again] = send(api, f"/runs/{name}/cancel")
    assert again["state"] == "CANCELLING"
    assert "a flow run is CANCELLING" in send(api, "/runs", 409, name=name, preset="demo")


def test_one_in_a_terminal_is_not_ours_to_cancel(api: TestClient, prefect_url: str, store: Store, name: str) -> None:
    """`coevo run` has its flow runs in Prefect too, of no deployment; one that was killed stays there as running."""
    made(store, name, "running")
    with store.write() as session:
        queries.run_leases.claim_run(session, run=name, owner="host:7:0", lease_seconds=60)
    [flow] = post(prefect_url, "/flows/filter", flows={"name": {"any_": ["co-evolve"]}})
    running = {"type": "RUNNING"}
    body = {"flow_id": flow["id"], "name": name, "parameters": {"run": name, "preset": "demo"}, "state": running}
    post(prefect_url, "/flow_runs/", **body)
    refused = send(api, f"/runs/{name}/cancel", 409)
    assert refused == f"run {name}: process 7 on host works on it, started by `coevo run`: stop it with Ctrl-C there"
    with store.write() as session:
        queries.run_leases.release_run(session, run=name, owner="host:7:0")
    assert [ended["state"] for ended in send(api, f"/runs/{name}/cancel")] == ["CANCELLED"]
    send(api, f"/runs/{name}/resume")


def test_a_run_that_a_process_works_on_is_refused_though_prefect_knows_of_none(
    api: TestClient, store: Store, name: str
) -> None:
    made(store, name, "running")
    with store.write() as session:
        queries.run_leases.claim_run(session, run=name, owner="node-1:7:0", lease_seconds=60)
    for path, body in ((f"/runs/{name}/resume", {}), ("/runs", {"name": name, "preset": "demo"})):
        assert send(api, path, 409, **body).startswith(f"run {name}: process 7 on node-1 works on it; if it has died,")


def test_a_paused_run_goes_on_as_a_person_decides(api: TestClient, prefect_url: str, store: Store, name: str) -> None:
    made(store, name, "paused")
    refused = send(api, f"/runs/{name}/decision", 409, decision="stop")
    assert refused == f"run {name}: it does not wait for a decision; it is paused"
    started = send(api, f"/runs/{name}/resume")
    keys = _pause(prefect_url, started)
    assert "a flow run is PAUSED" in send(api, f"/runs/{name}/resume", 409)
    send(api, f"/runs/{name}/decision", 422, decision="perhaps")
    answered = send(api, f"/runs/{name}/decision", decision="roll back", note="label accuracy fell")
    assert (answered["flow_run"], answered["state"]) == (started["flow_run"], "RUNNING")
    [said] = post(
        prefect_url, f"/flow_runs/{started['flow_run']}/input/filter", prefix=keys["response"], limit=1, exclude_keys=[]
    )
    assert Answer.model_validate_json(said["value"]).model_dump(include={"decision", "note"}) == {
        "decision": "roll back",
        "note": "label accuracy fell",
    }


def _pause(prefect_url: str, started: dict[str, str]) -> dict[str, str]:
    """Pause a flow run as `pause_flow_run` does, which waits for an `Answer`."""
    _set(prefect_url, started, type="RUNNING")
    keys = {"schema": "ask-schema", "response": "ask-response", "description": "ask-description"}
    schema = json.dumps(Answer.model_json_schema())
    path = f"/flow_runs/{started['flow_run']}/input"
    post(prefect_url, path, key=keys["schema"], value=schema)
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    details = {"pause_timeout": until, "pause_key": "ask", "run_input_keyset": keys}
    _set(prefect_url, started, type="PAUSED", state_details=details)
    return keys


def _set(prefect_url: str, started: dict[str, str], **state: Any) -> None:
    if state["type"] == "RUNNING":
        post(prefect_url, f"/flow_runs/{started['flow_run']}/set_state", state={"type": "PENDING"})
    answer = post(prefect_url, f"/flow_runs/{started['flow_run']}/set_state", state=state)
    assert answer["status"] == "ACCEPT", answer


def test_a_run_that_ended_or_is_another_is_not_gone_on_with(api: TestClient, store: Store, name: str) -> None:
    made(store, name, "done", iterations=2)
    ended = f"run {name}: it is done, of 2 iterations"
    assert send(api, "/runs", 409, name=name, preset="demo", iterations=2) == ended
    assert send(api, f"/runs/{name}/resume", 409) == ended
    assert "expected at least 2, which run" in send(api, f"/runs/{name}/resume", 422, iterations=1)
    assert "exists, of preset demo, got micro" in send(api, "/runs", 409, name=name, preset="micro")
    other = send(api, "/runs", 409, name=name, preset="demo", iterations=3, overrides={"dataset.candidates": 7})
    assert f"run {name}: exists with another configuration: dataset.candidates is" in other
    send(api, "/runs", name=name, preset="demo", iterations=3)
    with store.write() as session:
        queries.runs.set_run_status(session, name, "stopped")
    assert "it is stopped" in send(api, f"/runs/{name}/resume", 409, iterations=9)
    assert send(api, "/runs/nobody/resume", 404).startswith("run nobody: no such run")
    assert send(api, "/runs/nobody/cancel", 404).startswith("run nobody: no such run")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"preset": "nosuch"}, "body.preset: expected one of demo, dr_grpo, "),
        ({"preset": "../demo"}, "body.preset: String should match pattern"),
        ({"preset": "demo.toml"}, "body.preset: String should match pattern"),
        ({"name": "../up"}, "body.name: String should match pattern"),
        ({"iterations": 0}, "body.iterations: Input should be greater than 0"),
        ({"flow": "self_train"}, "body.flow: expected co_evolve, whose preset demo is, got self_train"),
        ({"colour": "red"}, "body.colour: Extra inputs are not permitted"),
        (
            {"overrides": {"dataset.candidates": 0}},
            "body.overrides: dataset.candidates: Input should be greater than 0",
        ),
        ({"overrides": {"seed.x": 1}}, "body.overrides: override seed.x: seed is a value, not a section"),
        ({"overrides": {"dataset": {"votes": 3}}}, "body.overrides.dataset.bool: Input should be a valid boolean"),
        # files, programs and addresses of the server
        ({"overrides": {"base_model": "/models/other"}}, "body.overrides.base_model: expected a number or a word"),
        ({"overrides": {"evaluation.benchmark": "/etc/passwd"}}, "body.overrides.evaluation.benchmark: expected"),
        ({"overrides": {"trainer.python": "bash"}}, "body.overrides.trainer.python: expected a number or a word"),
        ({"overrides": {"solver.signals.embedder.url": "http://x/v1"}}, "body.overrides.solver.signals.embedder.url"),
        # what Prefect would fill in from its own templates and variables
        ({"overrides": {"__prefect_kind": "jinja", "template": "{{ 7 * 7 }}"}}, "body.overrides.__prefect_kind"),
    ],
)
def test_what_cannot_be_started_is_said_with_its_field(
    api: TestClient, name: str, body: dict[str, Any], complaint: str
) -> None:
    assert complaint in send(api, "/runs", 422, **{"name": name, "preset": "demo", **body})


UNREADY = {
    "model": ('base_model = "models/none"', "base_model: expected a folder with a Hugging Face model, got models/none"),
    "benchmark": ('[evaluation]\nbenchmark = "none.jsonl"', "evaluation.benchmark: benchmark none.jsonl: cannot read"),
    "engine": ('[serving]\napplications = "none"', "serving.applications: none: no such file"),
    "layout": ('[trainer]\ntype = "easyr1"\ngpus_per_node = 7', "GPUs: EasyR1 deals out"),
    "key": (
        '[audit]\noracle = "judge"\n[audit.judge]\nmodel = "m"\nurl = "http://127.0.0.1:9/v1"\nkey_variable = "NO_KEY"',
        "key_variable: NO_KEY is not set in the environment",
    ),
}


@pytest.fixture
def checking(store: Store, tmp_path: Path, prefect_url: str) -> TestClient:
    """An API beside the flow runner, with presets that cannot be run here."""
    presets = tmp_path / "presets"
    presets.mkdir()
    for name, (text, _) in UNREADY.items():
        (presets / f"{name}.toml").write_text(text)
    (presets / "ready.toml").write_text("iterations = 1")
    options: dict[str, Any] = {"prefect": known(prefect_url), "presets": presets, "refuse_unready": refuse_unready}
    return TestClient(create_app(store, tmp_path, ask_for_keys=False, **options), "http://localhost")


@pytest.mark.parametrize("preset", UNREADY)
def test_a_run_that_cannot_start_is_refused_before_it_is_accepted(
    checking: TestClient, prefect_url: str, name: str, preset: str
) -> None:
    assert f"body.preset: {UNREADY[preset][1]}" in send(checking, "/runs", 422, name=name, preset=preset).replace(
        "http://127.0.0.1:9/v1: ", ""
    )
    assert post(prefect_url, "/flow_runs/filter", flow_runs={"name": {"any_": [name]}}) == []


def test_a_run_that_can_no_longer_start_is_not_resumed(checking: TestClient, store: Store, name: str) -> None:
    send(checking, "/runs", name=name, preset="ready")
    send(checking, f"/runs/{name}/cancel")
    made(store, name, "failed", **{"evaluation.benchmark": "gone.jsonl", "base_model": "gone"})
    refused = send(checking, f"/runs/{name}/resume", 409)  # its base model was copied when it was made
    assert refused.startswith(f"run {name}: evaluation.benchmark: benchmark gone.jsonl: cannot read")


def test_a_word_of_the_settings_may_be_chosen(api: TestClient, prefect_url: str, name: str) -> None:
    overrides = {"solver.reward.type": "evol_rl", "evaluation.benchmark": "micro", "audit.oracle": "none"}
    started = send(api, "/runs", name=name, preset="micro", overrides=overrides)
    assert flow_run(prefect_url, started)["parameters"]["overrides"] == overrides


def test_presets_are_told_with_what_they_are(api: TestClient) -> None:
    found = {each["name"]: each["about"] for each in api.get(f"{PREFIX}/presets").json()}
    assert found.keys() == {path.stem for path in PRESETS.glob("*.toml")}
    assert found["demo"].startswith("The demo: three iterations of R-Zero")


def test_without_prefect_nothing_is_started(store: Store, tmp_path: Path, name: str) -> None:
    unknown = TestClient(create_app(store, tmp_path, ask_for_keys=False, presets=PRESETS), "http://localhost")
    assert "this API knows of no Prefect" in send(unknown, "/runs", 503, name=name, preset="demo")
    url = "http://127.0.0.1:9"
    silent = TestClient(
        create_app(store, tmp_path, ask_for_keys=False, prefect=known(url), presets=PRESETS), "http://localhost"
    )
    assert "Prefect did not answer" in send(silent, "/runs", 503, name=name, preset="demo")
    assert "Prefect did not answer" in send(silent, f"/runs/{name}/cancel", 503)


def test_another_password_than_prefects_is_named(store: Store, tmp_path: Path, prefect_url: str, name: str) -> None:
    stranger = PrefectServer(prefect_url, "coevo:another")
    api = TestClient(
        create_app(store, tmp_path, ask_for_keys=False, prefect=stranger, presets=PRESETS), "http://localhost"
    )
    assert "PREFECT_API_AUTH_STRING is not the server's" in send(api, "/runs", 503, name=name, preset="demo")
