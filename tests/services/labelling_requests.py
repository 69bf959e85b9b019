"""Requests of people who label, and of whoever draws a sample for them."""

from __future__ import annotations

from typing import Any

from api_examples import RUN
from fastapi.testclient import TestClient

from services.api.app import PREFIX
from storage import queries
from storage.session import Store

ITERATION = f"{PREFIX}/runs/{RUN}/iterations/1"


LABELLING = f"{ITERATION}/labelling"


def draw(api: TestClient, size: int = 3, status: int = 201, **more: Any) -> Any:
    response = api.post(f"{ITERATION}/samples", json={"oracle": "human", "size": size, **more})
    assert response.status_code == status, response.text
    return response.json()


def next_question(api: TestClient, annotator: str) -> Any:
    response = api.get(f"{LABELLING}/next", params={"annotator": annotator})
    assert response.status_code == 200, response.text
    return response.json()


def annotate(api: TestClient, index: int, annotator: str, verdict: str, status: int = 201, **more: Any) -> Any:
    response = api.post(f"{LABELLING}/{index}", json={"annotator": annotator, "verdict": verdict, **more})
    assert response.status_code == status, response.text
    return response.json()


def samples_drawn(store: Store) -> list[Any]:
    with store.read() as session:
        return queries.audits.samples_of(session, RUN, 1, "human")
