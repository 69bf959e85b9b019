"""A request's body that is larger than any the API needs is refused, with a key and without."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from services.api.access.body_limit import LARGEST
from services.api.app import PREFIX, create_app
from storage.session import Store

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def store(sqlite: Store) -> Store:
    """A store that these tests do not read."""
    return sqlite


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_body_is_refused(store: Store, tmp_path: Path, keys: bool, chunked: bool) -> None:
    api = TestClient(create_app(store, tmp_path, ask_for_keys=keys), "http://127.0.0.1:8080")
    body = (b" " * 1_024 for _ in range(LARGEST // 1_024 + 1)) if chunked else b" " * (LARGEST + 1)
    response = api.post(f"{PREFIX}/runs", headers=JSON, content=body)
    detail = "the request's body: expected at most 65,536 bytes, got more"
    assert (response.status_code, response.json()["detail"]) == (413, detail)
    assert response.headers["content-type"] == "application/problem+json"
    fits = api.post(f"{PREFIX}/runs", headers=JSON, content=b" " * (LARGEST - 2) + b"{}")
    assert fits.status_code == (401 if keys else 422)
