"""Requests that start and continue runs, for an API with a real Prefect server that has no worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from fastapi.testclient import TestClient
from prefect_server import prefect_at

from core.settings.parsing import load_config
from services.api.app import PREFIX, create_app
from services.api.installation import Installation
from storage import queries
from storage.rows import RunStatus
from storage.session import Store

PRESETS = Path(__file__).parents[2] / "deploy" / "runs"


def api_with_prefect(store: Store, exports: Path, prefect_url: str) -> TestClient:
    app = create_app(
        store, exports, ask_for_keys=False, installation=Installation(prefect=prefect_at(prefect_url), presets=PRESETS)
    )
    return TestClient(app, "http://localhost")


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
