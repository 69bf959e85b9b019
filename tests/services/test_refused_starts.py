"""Requests that cannot be started are refused with what is wrong, before Prefect hears of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from prefect_server import post, prefect_at
from run_requests import PRESETS, api_with_prefect, send, store_run, unknown_name

from core.settings.parsing import ConfigError, load_config
from orchestrator.check.refusals import refuse_unready
from services.api.app import PREFIX, create_app
from services.api.installation import Installation
from storage.session import Store


@pytest.fixture
def api(sqlite: Store, tmp_path: Path, prefect_url: str) -> TestClient:
    return api_with_prefect(sqlite, tmp_path, prefect_url)


@pytest.fixture
def name() -> str:
    return unknown_name()


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"preset": "nosuch"}, "body.preset: nosuch: no such preset; expected one of demo, demo-long, dr_grpo, "),
        ({"preset": "../demo"}, "body.preset: expected a text that matches ^"),
        ({"preset": "demo.toml"}, "body.preset: expected a text that matches ^"),
        ({"name": "../up"}, "body.name: expected a text that matches ^"),
        ({"iterations": 0}, "body.iterations: expected more than 0, got 0"),
        ({"flow": "self_train"}, "body.flow: expected co_evolve, the flow of preset demo, got self_train"),
        ({"colour": "red"}, "body.colour: there is no such field"),
        (
            {"overrides": {"dataset.candidates": 0}},
            "body.overrides.dataset.candidates: expected more than 0, got 0",
        ),
        ({"overrides": {"seed.x": 1}}, "body.overrides.seed.x: expected a whole number, got {"),
        ({"overrides": {"dataset": {"votes": 0}}}, "body.overrides.dataset.votes: expected more than 0, got 0"),
        ({"overrides": {"dataset": {"votes": "/etc"}}}, "body.overrides.dataset.votes: expected a whole number"),
        ({"overrides": {"trainer": {"python": "/bin/sh"}}}, "body.overrides.trainer.python: "),
        ({"overrides": {"base_model": ""}}, "body.overrides.base_model: expected a number or a word"),
        ({"overrides": {"dataset.votes": True}}, "body.overrides.dataset.votes: expected a whole number, got true"),
        ({"overrides": {"dataset.votes": None}}, "body.overrides.dataset.votes: expected a whole number, got none"),
        ({"overrides": {"dataset": None}}, "body.overrides.dataset: expected a table of names and values, got none"),
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
        ({"overrides": {"dataset": {"__prefect_kind": "jinja"}}}, "body.overrides.dataset"),
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
def api_that_checks_readiness(sqlite: Store, tmp_path: Path, prefect_url: str) -> TestClient:
    """An API that checks whether a run could start here, with presets that could not."""
    presets = tmp_path / "presets"
    presets.mkdir()
    for name, (text, _) in UNREADY.items():
        (presets / f"{name}.toml").write_text(text)
    (presets / "ready.toml").write_text("iterations = 1")
    here = Installation(prefect=prefect_at(prefect_url), presets=presets, refuse_unready=refuse_unready)
    return TestClient(create_app(sqlite, tmp_path, ask_for_keys=False, installation=here), "http://localhost")


@pytest.mark.parametrize("preset", UNREADY)
def test_a_run_that_cannot_start_is_refused_before_it_is_accepted(
    api_that_checks_readiness: TestClient, prefect_url: str, name: str, preset: str
) -> None:
    assert f"body.preset: {UNREADY[preset][1]}" in send(
        api_that_checks_readiness, "/runs", 422, name=name, preset=preset
    ).replace("http://127.0.0.1:9/v1: ", "")
    assert post(prefect_url, "/flow_runs/filter", flow_runs={"name": {"any_": [name]}}) == []


def test_a_run_that_can_no_longer_start_is_not_resumed(
    api_that_checks_readiness: TestClient, sqlite: Store, name: str
) -> None:
    send(api_that_checks_readiness, "/runs", name=name, preset="ready")
    send(api_that_checks_readiness, f"/runs/{name}/cancel")
    store_run(sqlite, name, "failed", **{"evaluation.benchmark": "gone.jsonl", "base_model": "gone"})
    # The base model is not checked, because the run has a copy of it.
    refused = send(api_that_checks_readiness, f"/runs/{name}/resume", 409)
    assert refused.startswith(f"run {name}: evaluation.benchmark: benchmark gone.jsonl: cannot be read")
