"""The API's error replies are short, whatever a client sent."""

from __future__ import annotations

import json
from pathlib import Path

from fastapi.testclient import TestClient

from services.api.access.body_limit import LARGEST
from services.api.app import PREFIX, create_app
from storage.session import Store


def test_the_first_errors_are_named_and_the_others_counted(sqlite: Store, tmp_path: Path) -> None:
    api = TestClient(create_app(sqlite, tmp_path, ask_for_keys=False), "http://127.0.0.1")
    request = {"name": "demo", "preset": "demo", "x" * 30_000: 1, **{f"k{i}": i for i in range(2_000)}}
    assert len(json.dumps(request)) < LARGEST
    response = api.post(f"{PREFIX}/runs", json=request)
    assert response.status_code == 422
    problem = response.json()
    assert [error["field"] for error in problem["errors"]][:2] == [f"body.{'x' * 95}…", "body.k0"]
    assert len(problem["errors"]) == 20
    assert problem["detail"].endswith("body.k18: Extra inputs are not permitted; and 1,981 more")
    assert len(response.content) < 10_000
