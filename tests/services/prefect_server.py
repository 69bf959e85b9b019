"""A Prefect server for tests, with our deployments and without a worker: flow runs that are triggered stay scheduled.

It asks for a password, like every server that coevo starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from orchestrator import flows
from orchestrator.evaluation import flows as evaluation_flows
from orchestrator.installation import prefect_command
from orchestrator.installation.ports import free_port
from services.prefect.server import PrefectServer
from tests.live import wait_until

AUTH = "coevo:a-password"


@contextmanager
def prefect_server(folder: Path, port: int = 0) -> Iterator[str]:
    """Run a server for the block, by default on a free port; yields its address."""
    url = f"http://127.0.0.1:{port or free_port()}"
    env = {**os.environ, "PREFECT_HOME": str(folder), "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    env["PREFECT_SERVER_API_AUTH_STRING"] = AUTH
    env.pop("PREFECT_API_URL", None)
    command = [sys.executable, "-m", prefect_command.__name__, "server", "start", "--no-ui"]
    command += ["--host=127.0.0.1", f"--port={url.rpartition(':')[2]}"]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        wait_until(lambda: _answers(url), f"the Prefect server to answer; see {folder}/server.log", 180)
        for flow in (flows.co_evolve, flows.self_train, flows.iteration, evaluation_flows.evaluate):
            created = post(url, "/flows/", name=flow.name)
            schema = flow.parameters.model_dump()
            post(
                url,
                "/deployments/",
                name=flow.name,
                flow_id=created["id"],
                parameter_openapi_schema=schema,
                tags=["coevo"],
            )
        yield url
    finally:
        process.terminate()
        process.wait(60)


def post(url: str, path: str, **body: Any) -> Any:
    """Send a POST request to Prefect's API; returns its reply."""
    return prefect_at(url).request("POST", path, body, 30).raise_for_status().json()


def prefect_at(url: str) -> PrefectServer:
    """The server, with the password that its API needs."""
    return PrefectServer(url, AUTH)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/api/health", trust_env=False, timeout=2).status_code == 200
    except httpx.TransportError:
        time.sleep(0.1)
        return False
