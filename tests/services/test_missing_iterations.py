"""Every route of an iteration answers 404 for an iteration that the run has not got, and not an empty list."""

from __future__ import annotations

from pathlib import Path

import pytest
from api_examples import RUN, fill
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from local_api import local_api

from services.api.app import PREFIX
from storage.session import Store

MISSING, PLANNED = 3, 2  # the example is planned to have two iterations, and its second one has no label yet
VALUES: dict[str, object] = {"run": RUN, "role": "solver", "oracle": "human", "step": 1}
VALUES |= dict.fromkeys(("index", "sample_index", "prompt", "rollout"), 0)
BODIES = {"samples": {"oracle": "human", "size": 4}, "labelling": {"verdict": "right", "annotator": "ann"}}
QUERIES = {"next": {"annotator": "ann"}}


@pytest.fixture
def api(sqlite: Store, tmp_path: Path) -> TestClient:
    fill(sqlite)
    return local_api(sqlite, tmp_path)


def test_every_route_of_an_iteration_answers_404_with_a_clear_message(api: TestClient) -> None:
    assert isinstance(api.app, FastAPI)
    routes = [route for route in api.app.routes if isinstance(route, APIRoute) and "{iteration}" in route.path]
    assert len(routes) >= 9
    for route in routes:
        [method] = route.methods
        path, last = route.path.format(**VALUES, iteration=MISSING), route.path.rpartition("/")[2]
        body = next((body for name, body in BODIES.items() if name in path), None) if method == "POST" else None
        response = api.request(method, path, json=body, params=QUERIES.get(last))
        assert response.status_code == 404, (method, path, response.text)
        detail = response.json()["detail"]
        if "/questions/" in path or "/checkpoints/" in path:
            assert f"/{MISSING}" in detail
        else:
            assert detail == "run demo, iteration 3: no such iteration; the run has iterations 0 to 2", (method, path)


@pytest.mark.parametrize("route", ["export", "export/manifest", "export/rows"])
def test_an_export_of_a_missing_iteration_is_refused(api: TestClient, route: str) -> None:
    missing = api.get(f"{PREFIX}/runs/{RUN}/{route}?iterations=1-{MISSING}")
    assert (missing.status_code, "iteration 3: no such iteration" in missing.json()["detail"]) == (404, True)
    later = api.get(f"{PREFIX}/runs/{RUN}/{route}?iterations=1-{PLANNED}")
    if route.endswith("rows"):
        assert later.json() == {"iterations": [], "questions": 0, "votes": 0}
    else:
        assert (later.status_code, "not all labelled yet" in later.json()["detail"]) == (409, True)


def test_an_iteration_that_is_planned_but_empty_is_an_empty_answer(api: TestClient) -> None:
    path = f"{PREFIX}/runs/{RUN}/iterations/{PLANNED}"
    assert api.get(f"{path}/questions?verdict=kept").json() == {"items": [], "next": None}
    assert api.get(f"{path}/statistics").json()["verdicts"] == {}
    assert api.get(f"{path}/clusters").json() == []
    assert api.get(f"{path}/samples/human").json()["drawn"] == 0
    assert api.get(f"{PREFIX}/runs/{RUN}").json()["iterations"] == PLANNED
