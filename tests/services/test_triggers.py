"""Runs triggered over REST; Prefect's server is real and has no worker."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from prefect_server import post, prefect_at

from core.settings.parsing import ConfigError, load_config
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
    """A store on SQLite only: these tests read and write simple rows of runs."""
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


def send(api: TestClient, path: str, expected: int = 202, **body: Any) -> Any:
    response = api.post(PREFIX + path, json=body)
    assert response.status_code == expected, response.text
    return response.json() if expected == 202 else response.json()["detail"]


def store_run(store: Store, name: str, status: RunStatus, preset: str = "demo", **overrides: Any) -> None:
    """Store a run as its flow would."""
    with store.write() as session:
        config = load_config(PRESETS / f"{preset}.toml", overrides)
        queries.runs.create_run(session, name=name, config=config, preset=preset)
        queries.runs.set_run_status(session, name, status)


def flow_run(prefect_url: str, started: dict[str, str]) -> dict[str, Any]:
    [row] = post(prefect_url, "/flow_runs/filter", flow_runs={"id": {"any_": [started["flow_run"]]}})
    return dict(row)


def test_a_run_is_started_as_a_flow_run_of_its_deployment(api: TestClient, prefect_url: str, name: str) -> None:
    started = send(api, "/runs", name=name, preset="demo", iterations=2, overrides={"dataset.band": [0.3, 0.8]})
    assert started == {
        "run": name,
        "flow_run": started["flow_run"],
        "state": "waiting",
        "reason": "Prefect has accepted it; no flow runner has taken it yet",
        "url": f"{prefect_url}/runs/flow-run/{started['flow_run']}",
    }
    row = flow_run(prefect_url, started)
    assert (row["name"], set(row["tags"]), row["state_type"]) == (name, {"coevo", name}, "SCHEDULED")
    parameters = {"run": name, "preset": "demo", "iterations": 2, "overrides": {"dataset.band": [0.3, 0.8]}}
    assert row["parameters"] == parameters
    again = send(api, "/runs", 409, name=name, preset="demo")
    assert again == f"run {name}: expected no active flow run, but a flow run is SCHEDULED: {started['url']}"


def test_a_preset_with_prompts_is_run_by_the_self_train_flow(api: TestClient, prefect_url: str, name: str) -> None:
    row = flow_run(prefect_url, send(api, "/runs", name=name, preset="micro", flow="self_train"))
    [flow] = post(prefect_url, "/flows/filter", flow_runs={"id": {"any_": [row["id"]]}})
    assert (flow["name"], row["parameters"]["preset"]) == ("self-train", "micro")


def test_one_of_several_simultaneous_requests_starts_the_run(api: TestClient, name: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        body = {"name": name, "preset": "demo"}
        answers = list(threads.map(lambda _: api.post(f"{PREFIX}/runs", json=body).status_code, range(4)))
    assert sorted(answers) == [202, 409, 409, 409]


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
    _set(prefect_url, started, type="RUNNING")
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
    how = "stop it with Ctrl-C in its terminal"
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
    [stored] = post(
        prefect_url, f"/flow_runs/{started['flow_run']}/input/filter", prefix=keys["response"], limit=1, exclude_keys=[]
    )
    assert Answer.model_validate_json(stored["value"]).model_dump(include={"decision", "note"}) == {
        "decision": "roll back",
        "note": "label accuracy fell",
    }


def _pause(prefect_url: str, started: dict[str, str]) -> dict[str, str]:
    """Pause a flow run like `pause_flow_run`, which waits for an `Answer`; returns the keys of its input."""
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
    response = post(prefect_url, f"/flow_runs/{started['flow_run']}/set_state", state=state)
    assert response["status"] == "ACCEPT", response


def test_a_run_that_has_ended_or_has_another_configuration_is_not_continued(
    api: TestClient, store: Store, name: str
) -> None:
    store_run(store, name, "done", iterations=2)
    ended = f"run {name}: expected a run that can continue, but it is done, with 2 iterations"
    assert send(api, "/runs", 409, name=name, preset="demo", iterations=2) == ended
    assert send(api, f"/runs/{name}/resume", 409) == ended
    assert "expected at least 2, which run" in send(api, f"/runs/{name}/resume", 422, iterations=1)
    assert "exists with preset demo, got micro" in send(api, "/runs", 409, name=name, preset="micro")
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
        ({"preset": "nosuch"}, "body.preset: nosuch: no such preset; expected one of demo, demo-long, dr_grpo, "),
        ({"preset": "../demo"}, "body.preset: String should match pattern"),
        ({"preset": "demo.toml"}, "body.preset: String should match pattern"),
        ({"name": "../up"}, "body.name: String should match pattern"),
        ({"iterations": 0}, "body.iterations: Input should be greater than 0"),
        ({"flow": "self_train"}, "body.flow: expected co_evolve, the flow of preset demo, got self_train"),
        ({"colour": "red"}, "body.colour: Extra inputs are not permitted"),
        (
            {"overrides": {"dataset.candidates": 0}},
            "body.overrides.dataset.candidates: expected more than 0, got 0",
        ),
        ({"overrides": {"seed.x": 1}}, "body.overrides.seed.x: seed is a value, not a table"),
        ({"overrides": {"dataset": {"votes": 3}}}, "body.overrides.dataset.bool: Input should be a valid boolean"),
        # Files, programs and addresses on the server are refused.
        ({"overrides": {"base_model": "/models/other"}}, "body.overrides.base_model: expected a number or a word"),
        ({"overrides": {"evaluation.benchmark": "/etc/passwd"}}, "body.overrides.evaluation.benchmark: expected"),
        (
            {"overrides": {"trainer.type": "easyr1", "trainer.python": "bash"}},
            "body.overrides.trainer.python: expected a number or a word",
        ),
        (
            {"overrides": {"audit.oracle": "program", "audit.program.file": "/bin/sh"}},
            "body.overrides.audit.program.file: expected a number or a word",
        ),
        (
            {"overrides": {"audit.oracle": "program", "audit.program.file": "micro"}},
            "body.overrides.audit.program.file: expected the absolute path of a program, got 'micro'",
        ),
        ({"overrides": {"solver.signals.embedder.url": "http://x/v1"}}, "body.overrides.solver.signals.embedder.url"),
        # Prefect would fill this in from its own templates and variables.
        ({"overrides": {"__prefect_kind": "jinja", "template": "{{ 7 * 7 }}"}}, "body.overrides.__prefect_kind"),
    ],
)
def test_a_request_that_cannot_be_started_is_refused_with_its_field(
    api: TestClient, name: str, body: dict[str, Any], complaint: str
) -> None:
    assert complaint in send(api, "/runs", 422, **{"name": name, "preset": "demo", **body})


def test_all_wrong_settings_are_named_at_once_in_the_words_of_the_command_line(api: TestClient, name: str) -> None:
    overrides = {
        "solver.reward.type": "evolrl",
        "solver.training.stepz": 3,
        "base_model": "/models/other",
        "evaluation.benchmark": "micro",
    }
    response = api.post(f"{PREFIX}/runs", json={"name": name, "preset": "demo", "overrides": overrides})
    assert response.status_code == 422
    messages = {error["field"]: error["message"] for error in response.json()["errors"]}
    assert [*messages] == [f"body.overrides.{setting}" for setting in [*overrides][:3]]
    with pytest.raises(ConfigError) as caught:
        load_config(PRESETS / "demo.toml", {key: overrides[key] for key in [*overrides][:2]}, "--set")
    for fault in caught.value.faults:
        assert str(fault) == f"{fault.source}: {messages[f'body.overrides.{fault.setting}']}"
    assert messages["body.overrides.solver.reward.type"].endswith("got 'evolrl'; did you mean 'evol_rl'?")


UNREADY = {
    "model": ('base_model = "models/none"', "base_model: expected a folder with a Hugging Face model, got models/none"),
    "benchmark": (
        '[evaluation]\nbenchmark = "none.jsonl"',
        "evaluation.benchmark: benchmark none.jsonl: cannot be read",
    ),
    "engine": ('[serving]\napplications = "none"', "serving.applications: none: no such file"),
    "layout": ('[trainer]\ntype = "easyr1"\ngpus_per_node = 7', "trainer.gpus_per_node: expected a divisor of"),
    "key": (
        '[audit]\noracle = "judge"\n[audit.judge]\nmodel = "m"\nurl = "http://127.0.0.1:9/v1"\nkey_variable = "NO_KEY"',
        "audit.judge: key_variable: NO_KEY is not set in the environment",
    ),
}


@pytest.fixture
def api_that_checks_readiness(store: Store, tmp_path: Path, prefect_url: str) -> TestClient:
    """An API that checks whether a run could start here, with presets that could not."""
    presets = tmp_path / "presets"
    presets.mkdir()
    for name, (text, _) in UNREADY.items():
        (presets / f"{name}.toml").write_text(text)
    (presets / "ready.toml").write_text("iterations = 1")
    options: dict[str, Any] = {"prefect": prefect_at(prefect_url), "presets": presets, "refuse_unready": refuse_unready}
    return TestClient(create_app(store, tmp_path, ask_for_keys=False, **options), "http://localhost")


@pytest.mark.parametrize("preset", UNREADY)
def test_a_run_that_cannot_start_is_refused_before_it_is_accepted(
    api_that_checks_readiness: TestClient, prefect_url: str, name: str, preset: str
) -> None:
    assert f"body.preset: {UNREADY[preset][1]}" in send(
        api_that_checks_readiness, "/runs", 422, name=name, preset=preset
    ).replace("http://127.0.0.1:9/v1: ", "")
    assert post(prefect_url, "/flow_runs/filter", flow_runs={"name": {"any_": [name]}}) == []


def test_a_run_that_can_no_longer_start_is_not_resumed(
    api_that_checks_readiness: TestClient, store: Store, name: str
) -> None:
    send(api_that_checks_readiness, "/runs", name=name, preset="ready")
    send(api_that_checks_readiness, f"/runs/{name}/cancel")
    store_run(store, name, "failed", **{"evaluation.benchmark": "gone.jsonl", "base_model": "gone"})
    # The base model is not checked, because the run has a copy of it.
    refused = send(api_that_checks_readiness, f"/runs/{name}/resume", 409)
    assert refused.startswith(f"run {name}: evaluation.benchmark: benchmark gone.jsonl: cannot be read")


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
    api = TestClient(create_app(store, tmp_path, ask_for_keys=False, presets=tmp_path), "http://localhost")
    listed = {preset["name"]: preset["about"] for preset in api.get(f"{PREFIX}/presets").json()}
    assert listed == {"good": "It is good.", "bad": "", "folder": ""}


def test_without_prefect_no_run_can_be_started(store: Store, tmp_path: Path, name: str) -> None:
    unknown = TestClient(create_app(store, tmp_path, ask_for_keys=False, presets=PRESETS), "http://localhost")
    assert "this API has no Prefect server" in send(unknown, "/runs", 503, name=name, preset="demo")
    url = "http://127.0.0.1:9"
    silent = TestClient(
        create_app(store, tmp_path, ask_for_keys=False, prefect=prefect_at(url), presets=PRESETS), "http://localhost"
    )
    assert "Prefect did not answer" in send(silent, "/runs", 503, name=name, preset="demo")
    assert "Prefect did not answer" in send(silent, f"/runs/{name}/cancel", 503)


def test_a_wrong_prefect_password_is_named_in_the_error(
    store: Store, tmp_path: Path, prefect_url: str, name: str
) -> None:
    stranger = PrefectServer(prefect_url, "coevo:another")
    api = TestClient(
        create_app(store, tmp_path, ask_for_keys=False, prefect=stranger, presets=PRESETS), "http://localhost"
    )
    assert "PREFECT_API_AUTH_STRING of this API differs" in send(api, "/runs", 503, name=name, preset="demo")
