"""Connections do not stay with the process that happened to take them."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.testclient import TestClient

from services.api.connections import Spreading


def test_one_answer_in_twenty_ends_its_connection() -> None:
    app = FastAPI()
    app.get("/")(lambda: "here")
    app.add_middleware(Spreading)
    with TestClient(app) as client:
        answers = [client.get("/" if i % 2 else "/nowhere") for i in range(60)]
    assert [i for i, each in enumerate(answers) if each.headers.get("connection") == "close"] == [19, 39, 59]
    assert {each.status_code for each in answers} == {200, 404}
