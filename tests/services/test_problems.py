"""Problems are short, whatever was sent."""

from __future__ import annotations

import json
from pathlib import Path

from fastapi.testclient import TestClient

from services.api.app import PREFIX, create_app
from services.api.body_limit import LARGEST
from storage.session import Store


def test_the_first_errors_are_named_and_the_others_counted(sqlite: Store, tmp_path: Path) -> None:
    api = TestClient(create_app(sqlite, tmp_path, ask_for_keys=False), "http://127.0.0.1")
    wanted = {"name": "demo", "preset": "demo", "x" * 30_000: 1, **{f"k{i}": i for i in range(2_000)}}
    assert len(json.dumps(wanted)) < LARGEST
    answer = api.post(f"{PREFIX}/runs", json=wanted)
    assert answer.status_code == 422
    problem = answer.json()
    assert [each["field"] for each in problem["errors"]][:2] == [f"body.{'x' * 95}…", "body.k0"]
    assert len(problem["errors"]) == 20
    assert problem["detail"].endswith("body.k18: Extra inputs are not permitted; and 1,981 more")
    assert len(answer.content) < 10_000
