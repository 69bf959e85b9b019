"""Comparisons that take long do not keep the other routes from answering."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from arrivals import Arrivals

from services.api.app import PREFIX, create_app
from services.api.installation import Installation, QuestionSets
from services.api.routes import comparisons
from storage.errors import StoreError
from storage.session import Store
from tests.api_server import served

MANY = 45  # more than the API's threads, and than its connections to the database


@pytest.mark.parametrize(
    ("function", "path"),
    [("arms_named", "comparison?name=a"), ("models_named", "comparison/models?model=a&benchmark=b")],
)
def test_other_routes_answer_while_many_comparisons_wait(
    sqlite: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, path: str
) -> None:
    may_end = threading.Event()

    def slow(*_: Any) -> Any:
        assert may_end.wait(60)
        raise StoreError("it took long")

    monkeypatch.setattr(comparisons, function, slow)
    app = Arrivals(
        create_app(sqlite, tmp_path, ask_for_keys=False, installation=Installation(question_sets=QuestionSets(("b",))))
    )
    with served(app) as url, ThreadPoolExecutor(MANY) as clients, httpx.Client(trust_env=False, timeout=20) as http:
        requests = [clients.submit(httpx.get, f"{url}{PREFIX}/{path}", timeout=60) for _ in range(MANY)]
        app.wait_for(MANY)
        try:
            assert http.get(f"{url}/healthz").status_code == 200
            assert http.get(f"{url}{PREFIX}/experiments").status_code == 200
        finally:
            may_end.set()
        assert {request.result().status_code for request in requests} == {409}
