"""deploy/prefect.yaml is read by Prefect's own loader and deployed on a real Prefect server."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest
from prefect import Flow
from prefect.cli.deploy._config import _load_deploy_configs_and_actions as load
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from rich.console import Console

from core.settings.parsing import load_config
from core.validation.bounds import MOST_ITERATIONS
from orchestrator import flows
from orchestrator.evaluation import flows as evaluation_flows
from orchestrator.installation.home import PRESETS, ROOT
from orchestrator.runner.process import DEPLOYMENTS, POOL, register
from services.prefect.flow_runs import EXISTING
from tests.services.prefect_server import AUTH, prefect_at

FLOWS = {
    value.name: value for file in (flows, evaluation_flows) for value in vars(file).values() if isinstance(value, Flow)
}


@pytest.fixture(scope="module")
def deployments() -> list[dict[str, Any]]:
    console = Console(record=True, quiet=True)
    loaded, actions = load(DEPLOYMENTS, console=console)
    assert console.export_text() == ""  # the loader would print here what it does not understand, and go on
    assert actions == {"build": [], "push": [], "pull": []}
    return loaded


def test_every_flow_has_a_deployment_in_the_pool(deployments: list[dict[str, Any]]) -> None:
    entrypoints = [deployment["entrypoint"] for deployment in deployments]
    named = {f"{flow.fn.__module__.replace('.', '/')}.py:{flow.fn.__name__}" for flow in FLOWS.values()}
    assert sorted(entrypoints) == sorted(named)
    assert {deployment["work_pool"]["name"] for deployment in deployments} == {POOL}


def test_entrypoints_are_flows_that_accept_the_deployment_s_parameters(deployments: list[dict[str, Any]]) -> None:
    for deployment in deployments:
        path, name = deployment["entrypoint"].split(":")
        assert (ROOT / path).is_file()
        flow = getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), name)
        assert isinstance(flow, Flow)
        schema = flow.parameters.model_dump()
        parameters = deployment.get("parameters", {})
        assert parameters.keys() <= schema["properties"].keys()
        assert set(schema["required"]) - parameters.keys() <= {
            "run",
            "t",
            "model",
            "evaluations",
            "url",
        }  # only the caller knows these parameters
        for parameter, value in parameters.items():
            assert schema["properties"][parameter]["default"] == value


def _register(prefect_url: str) -> None:
    with temporary_settings({PREFECT_API_URL: f"{prefect_url}/api", PREFECT_API_AUTH_STRING: AUTH}):
        register()


def test_the_runner_registers_the_pool_and_the_deployments_and_keeps_a_changed_limit(
    prefect_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", f"{prefect_url}/api")  # for the command that `register` runs
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", AUTH)
    prefect = prefect_at(prefect_url)

    def answer(method: str, path: str, body: object = None) -> Any:
        return prefect.request(method, path, body).raise_for_status()

    _register(prefect_url)
    pool = answer("GET", f"/work_pools/{POOL}").json()
    assert (pool["type"], pool["concurrency_limit"]) == ("process", 4)
    for name, expected in FLOWS.items():
        deployment = answer("GET", f"/deployments/name/{name}/{name}").json()
        assert deployment["work_pool_name"] == POOL
        assert deployment["description"] == expected.description
        ours = json.loads(expected.parameters.model_dump_json())
        assert deployment["parameter_openapi_schema"]["properties"] == ours["properties"]
        (pull,) = deployment["pull_steps"]
        assert pull == {"prefect.deployments.steps.set_working_directory": {"directory": str(ROOT)}}
    ours = {"deployments": {"tags": {"all_": ["coevo"]}}}
    registered = {row["id"]: row["name"] for row in answer("POST", "/deployments/filter", ours).json()}
    assert sorted(registered.values()) == sorted(FLOWS)
    answer("PATCH", f"/work_pools/{POOL}", {"concurrency_limit": 2})
    _register(prefect_url)
    assert answer("GET", f"/work_pools/{POOL}").json()["concurrency_limit"] == 2
    assert {row["id"] for row in answer("POST", "/deployments/filter", ours).json()} == {*registered}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("co-evolve", {"run": "two words"}),
        ("co-evolve", {"run": "a" * 65}),
        ("self-train", {"run": "r", "iterations": -1}),
        ("self-train", {"run": "r", "iterations": MOST_ITERATIONS + 1}),
        ("iteration", {"run": "r", "t": 0}),
        ("evaluate", {"model": "r:best", "temperature": -1}),
        ("evaluate", {"model": "r:best", "limit": -1}),
    ],
)
def test_prefect_refuses_what_is_out_of_bounds_before_a_flow_begins(
    prefect_url: str, name: str, parameters: dict[str, Any]
) -> None:
    prefect = prefect_at(prefect_url)
    path = f"/deployments/{prefect.request('GET', f'/deployments/name/{name}/{name}').json()['id']}/create_flow_run"
    assert prefect.request("POST", path, {"parameters": parameters}).status_code == 409
    fault = [*parameters][-1]
    within_bounds = parameters | {fault: "r" if fault == "run" else 1}
    assert prefect.request("POST", path, {"parameters": within_bounds}).status_code == 201


@pytest.mark.parametrize(("name", "kind"), [("co-evolve", "co_evolve"), ("self-train", "self_train")])
def test_the_form_lists_the_presets_that_the_flow_can_run(name: str, kind: str) -> None:
    preset = json.loads(FLOWS[name].parameters.model_dump_json())["properties"]["preset"]
    kinds = {file.stem: load_config(file, {}).kind for file in PRESETS.glob("*.toml")}
    assert set(preset["enum"]) == {stem for stem, of in kinds.items() if of == kind} | {EXISTING}
    assert preset["default"] in preset["enum"]
    # In Python a path may be given, as `coevo run` does.
    assert FLOWS[name].validate_parameters({"run": "r", "preset": "my/own.toml"})["preset"] == "my/own.toml"
