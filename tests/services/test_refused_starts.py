"""Requests that cannot be started are refused with what is wrong, before Prefect hears of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from local_api import local_api
from prefect_server import post, prefect_at
from run_requests import PRESETS, api_with_prefect, send, store_run, unknown_name

from core.settings.parsing import ConfigError, load_config
from orchestrator.check.refusals import refuse_unready
from services.api.app import PREFIX
from storage.session import Store


@pytest.fixture
def api(sqlite: Store, tmp_path: Path, prefect_url: str) -> TestClient:
    return api_with_prefect(sqlite, tmp_path, prefect_url)


@pytest.fixture
def name() -> str:
    return unknown_name()


PROGRAM = {"audit.oracle": "program"}
# A setting, the override that has it, and what the API says of it. What a preset's file or the command line would be
# refused for in the same words is in tests/messages.txt; the test after the next one shows that they are the same.
OVERRIDES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("seed.x", {"seed.x": 1}, "expected a whole number, got {"),
    ("dataset.votes", {"dataset": {"votes": 0}}, "expected more than 0, got 0"),
    ("dataset.votes", {"dataset.votes": True}, "expected a whole number, got true"),
    ("dataset", {"dataset": None}, "expected a table of names and values, got none"),
    # Files, programs and addresses on the server are refused.
    ("dataset.votes", {"dataset": {"votes": "/etc"}}, "expected a whole number"),
    ("base_model", {"base_model": ""}, "expected a number or a word"),
    ("base_model", {"base_model": "/models/other"}, "expected a number or a word"),
    ("evaluation.benchmark", {"evaluation.benchmark": "/etc/passwd"}, "expected"),
    ("trainer.python", {"trainer": {"python": "/bin/sh"}}, ""),
    ("trainer.python", {"trainer.type": "easyr1", "trainer.python": "bash"}, "expected a number or a word"),
    ("audit.program.file", {**PROGRAM, "audit.program.file": "/bin/sh"}, "expected a number or a word"),
    ("audit.program.file", {**PROGRAM, "audit.program.file": "micro"}, "expected the absolute path of a program"),
    ("solver.signals.embedder.url", {"solver.signals.embedder.url": "http://x/v1"}, ""),
    # Prefect would fill this in from its own templates and variables.
    ("__prefect_kind", {"__prefect_kind": "jinja", "template": "{{ 7 * 7 }}"}, ""),
    ("dataset", {"dataset": {"__prefect_kind": "jinja"}}, ""),
)


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"preset": "nosuch"}, "preset", "nosuch: no such preset; expected one of demo, demo-long, dr_grpo, "),
        ({"preset": "../demo"}, "preset", "expected a text that matches ^"),
        ({"preset": "demo.toml"}, "preset", "expected a text that matches ^"),
        ({"name": "../up"}, "name", "expected a text that matches ^"),
        ({"iterations": 0}, "iterations", "expected more than 0, got 0"),
        ({"flow": "self_train"}, "flow", "expected co_evolve, the flow of preset demo, got self_train"),
        ({"colour": "red"}, "colour", "there is no such field"),
        *(({"overrides": override}, f"overrides.{setting}", message) for setting, override, message in OVERRIDES),
    ],
)
def test_a_request_that_cannot_be_started_is_refused_with_its_field(
    api: TestClient, name: str, body: dict[str, Any], field: str, message: str
) -> None:
    assert f"body.{field}: {message}" in send(api, "/runs", 422, **{"name": name, "preset": "demo", **body})


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
    "benchmark": ('[evaluation]\nbenchmark = "none.jsonl"', "evaluation.benchmark: benchmark none.jsonl: cannot"),
    "engine": ('[serving]\napplications = "none"', "serving.applications: none: no such file"),
    "layout": ('[trainer]\ntype = "easyr1"\ngpus_per_node = 7', "trainer.gpus_per_node: expected a divisor of"),
    "key": (
        '[audit]\noracle = "judge"\n[audit.judge]\nmodel = "m"\nurl = "http://127.0.0.1:9/v1"\nkey_variable = "NO_KEY"',
        "audit.judge: key_variable: NO_KEY is not set in the environment",
    ),
}


@pytest.fixture
def checking_api(sqlite: Store, tmp_path: Path, prefect_url: str) -> TestClient:
    """An API that checks whether a run could start here, with presets that could not."""
    presets = tmp_path / "presets"
    presets.mkdir()
    for name, (text, _) in UNREADY.items():
        (presets / f"{name}.toml").write_text(text)
    (presets / "ready.toml").write_text("iterations = 1")
    here = {"prefect": prefect_at(prefect_url), "presets": presets, "refuse_unready": refuse_unready}
    return local_api(sqlite, tmp_path, **here)


@pytest.mark.parametrize("preset", UNREADY)
def test_a_run_that_cannot_start_is_refused_before_it_is_accepted(
    checking_api: TestClient, prefect_url: str, name: str, preset: str
) -> None:
    refused = send(checking_api, "/runs", 422, name=name, preset=preset).replace("http://127.0.0.1:9/v1: ", "")
    assert f"body.preset: {UNREADY[preset][1]}" in refused
    assert post(prefect_url, "/flow_runs/filter", flow_runs={"name": {"any_": [name]}}) == []


def test_a_run_that_can_no_longer_start_is_not_resumed(checking_api: TestClient, sqlite: Store, name: str) -> None:
    send(checking_api, "/runs", name=name, preset="ready")
    send(checking_api, f"/runs/{name}/cancel")
    store_run(sqlite, name, "failed", **{"evaluation.benchmark": "gone.jsonl", "base_model": "gone"})
    # The base model is not checked, because the run has a copy of it.
    refused = send(checking_api, f"/runs/{name}/resume", 409)
    assert refused.startswith(f"run {name}: evaluation.benchmark: benchmark gone.jsonl: cannot be read")
