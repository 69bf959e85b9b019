"""Requests that start and continue runs, for an API with a real Prefect server that has no worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from fastapi.testclient import TestClient
from local_api import local_api
from prefect_server import post, prefect_at

from core.settings.parsing import load_config
from services.api.app import PREFIX
from storage import queries
from storage.rows import RunStatus
from storage.session import Store

PRESETS = Path(__file__).parents[2] / "deploy" / "runs"


def api_with_prefect(store: Store, exports: Path, prefect_url: str) -> TestClient:
    return local_api(store, exports, prefect=prefect_at(prefect_url), presets=PRESETS)


def unknown_name() -> str:
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


def move_to(prefect_url: str, flow_run: str, *states: str, **last: Any) -> None:
    """Move a flow run through these states, as a flow runner does; the last state has the fields in `last`."""
    for i, state in enumerate(states, 1):
        body = {"type": state, **(last if i == len(states) else {})}
        assert post(prefect_url, f"/flow_runs/{flow_run}/set_state", state=body)["status"] == "ACCEPT"
