"""deploy/prefect.yaml is read by Prefect's own loader and deployed on a real Prefect server that the tests start."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect import Flow
from prefect.cli.deploy._config import _load_deploy_configs_and_actions as load
from rich.console import Console

from orchestrator import flows
from orchestrator.installation.cluster import free_port
from orchestrator.installation.environment import environment
from orchestrator.installation.home import ROOT, Home, Services
from orchestrator.installation.runner import DEPLOYMENTS, POOL

FLOWS = {value.name: value for value in vars(flows).values() if isinstance(value, Flow)}


@pytest.fixture(scope="module")
def deployments() -> list[dict[str, Any]]:
    console = Console(record=True, quiet=True)
    loaded, actions = load(DEPLOYMENTS, console=console)
    assert console.export_text() == ""  # the loader would print here what it does not understand, and go on
    assert actions == {"build": [], "push": [], "pull": []}
    return loaded


def test_every_flow_has_a_deployment_in_the_pool(deployments: list[dict[str, Any]]) -> None:
    entrypoints = [deployment["entrypoint"] for deployment in deployments]
    named = {f"orchestrator/flows.py:{flow.fn.__name__}" for flow in FLOWS.values()}
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
        assert set(schema["required"]) - parameters.keys() <= {"run", "t"}  # only the caller knows these parameters
        for parameter, value in parameters.items():
            assert schema["properties"][parameter]["default"] == value


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """A Prefect server with its own database; yields the address of its API and the environment of its clients."""
    home, port = Home(tmp_path_factory.mktemp("home")), free_port()
    services = Services("", "", "", f"http://127.0.0.1:{port}", "", {})
    env = environment(home, services)
    home.path.joinpath("server.log").touch()
    with home.path.joinpath("server.log").open("w") as log:
        command = [str(Path(sys.executable).parent / "prefect"), "server", "start", "--host=127.0.0.1"]
        process = subprocess.Popen([*command, f"--port={port}"], env=env, stdout=log, stderr=log)
    try:
        _wait_for(f"{services.prefect_url}/api/health", process)
        yield f"{services.prefect_url}/api", env
    finally:
        process.terminate()
        process.wait(60)


def _wait_for(url: str, process: subprocess.Popen[bytes], patience_s: float = 180.0) -> None:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(url, timeout=2, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    pytest.fail(f"the Prefect server did not answer at {url}")


def _register(env: dict[str, str]) -> None:
    code = "from orchestrator.installation.runner import register; register()"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_runner_registers_the_pool_and_the_deployments_and_keeps_a_changed_limit(
    server: tuple[str, dict[str, str]],
) -> None:
    api, env = server
    _register(env)
    with httpx.Client(base_url=api, trust_env=False, timeout=30) as http:
        pool = http.get(f"/work_pools/{POOL}").raise_for_status().json()
        assert (pool["type"], pool["concurrency_limit"]) == ("process", 4)
        deployments = http.post("/deployments/filter", json={}).raise_for_status().json()
        assert len(deployments) == len(FLOWS)
        for name, expected in FLOWS.items():
            deployment = http.get(f"/deployments/name/{name}/coevo").raise_for_status().json()
            assert deployment["work_pool_name"] == POOL
            assert deployment["description"] == expected.description
            ours = json.loads(expected.parameters.model_dump_json())
            assert deployment["parameter_openapi_schema"]["properties"] == ours["properties"]
            (pull,) = deployment["pull_steps"]
            assert pull == {"prefect.deployments.steps.set_working_directory": {"directory": str(ROOT)}}
        http.patch(f"/work_pools/{POOL}", json={"concurrency_limit": 2}).raise_for_status()
    _register(env)
    assert httpx.get(f"{api}/work_pools/{POOL}", trust_env=False).json()["concurrency_limit"] == 2
    assert len(httpx.post(f"{api}/deployments/filter", json={}, trust_env=False).json()) == len(FLOWS)
