"""The API's error replies are short, whatever a client sent. The sentences are in tests/messages.txt."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from api_examples import RUN, fill
from fastapi.testclient import TestClient
from local_api import local_api
from sqlalchemy import text
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from services.api.access.body_limit import LARGEST
from services.api.access.keys import new_key
from services.api.app import PREFIX, create_app
from storage import queries
from storage.rows import PoolRow
from storage.session import Store


@pytest.fixture
def api(store: Store, tmp_path: Path) -> TestClient:
    fill(store)
    return local_api(store, tmp_path / "exports")


def test_the_first_errors_are_named_and_the_others_counted(sqlite: Store, tmp_path: Path) -> None:
    api = local_api(sqlite, tmp_path)
    request = {"name": "demo", "preset": "demo", "x" * 30_000: 1, **{f"k{i}": i for i in range(2_000)}}
    assert len(json.dumps(request)) < LARGEST
    response = api.post(f"{PREFIX}/runs", json=request)
    assert response.status_code == 422
    problem = response.json()
    assert [error["field"] for error in problem["errors"]][:2] == [f"body.{'x' * 95}…", "body.k0"]
    assert len(problem["errors"]) == 20
    assert problem["detail"].endswith("body.k18: there is no such field; and 1,981 more")
    assert len(response.content) < 10_000


ITERATION = f"/runs/{RUN}/iterations/1"


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ("{", "body: expected JSON; character 1: Expecting property name enclosed in double quotes"),
        ("[]", "body: expected a table of names and values, got []"),
        ('{"size": 3}', "body.oracle: expected a value, got none"),
        ('{"oracle": "human", "size": "x"}', "body.size: expected a whole number, got 'x'"),
    ],
)
def test_a_refused_body_is_answered_with_one_sentence(sqlite: Store, tmp_path: Path, body: str, detail: str) -> None:
    api = local_api(sqlite, tmp_path)
    headers = {"Content-Type": "application/json"}
    assert api.post(f"{PREFIX}{ITERATION}/samples", content=body, headers=headers).json()["detail"] == detail


def test_every_documented_error_is_answered_as_a_problem(sqlite: Store, tmp_path: Path) -> None:
    fill(sqlite)
    api = TestClient(create_app(sqlite, tmp_path, ask_for_keys=True), "http://localhost")
    reader, person = (
        {"Authorization": f"Bearer {new_key(sqlite, name, scopes)}"}
        for name, scopes in (("reader", ["read"]), ("person", ["read", "label"]))
    )
    samples = f"{PREFIX}{ITERATION}/samples"
    answers = [
        api.get(f"{PREFIX}/runs?after=nobody", headers=reader),
        api.get(f"{PREFIX}/runs"),
        api.post(f"{PREFIX}/runs", headers=reader),
        api.get(f"{PREFIX}/runs/nobody", headers=reader),
        api.get(f"{PREFIX}/runs/{RUN}/export?iterations=2", headers=reader),
        api.post(samples, headers=person, json={"x": "x" * LARGEST}),
        api.post(samples, headers={**person, "Content-Type": "text/plain"}, content="x"),
        api.get(f"{PREFIX}/runs/{RUN}/export?format=csv", headers={**reader, "Range": "bytes=999999-"}),
        api.get(f"{PREFIX}{ITERATION}/questions?limit=201", headers=reader),
    ]
    with sqlite.write() as session:
        session.execute(text("DROP TABLE pool_jobs"))
    answers.append(api.get(f"{PREFIX}/pool", headers=reader))
    problems = [answer.json() for answer in answers]
    statuses = [400, 401, 403, 404, 409, 413, 415, 416, 422, 503]
    assert [problem["status"] for problem in problems] == [answer.status_code for answer in answers] == statuses
    begins = ("after", "Authorization", "Authorization", "run nobody", f"run {RUN}, iteration 2", "the request's body")
    begins += ("Content-Type", "Range", "query.limit", "the database did not answer")
    for answer, problem, begin in zip(answers, problems, begins, strict=True):
        assert answer.headers["content-type"] == "application/problem+json"
        assert problem["detail"].startswith(begin)
    assert "pool_jobs" not in problems[-1]["detail"]  # why it did not answer is in the API's log only


def test_every_route_refuses_a_parameter_that_it_does_not_have(api: TestClient) -> None:
    values = {"run": RUN, "role": "solver", "kind": "jsonl"}
    paths = api.get("/api/openapi.json").json()["paths"]
    assert len(paths) > 50
    for path, operations in paths.items():
        filled = re.sub(r"{(\w+)}", lambda match: values.get(match[1], "1"), path)
        for method in operations:
            headers = {"Content-Type": "application/json", "Origin": "http://localhost"}
            response = api.request(method, f"{filled}?colour=red", headers=headers)
            assert response.status_code == 422, (method, path)
            assert [error["field"] for error in response.json()["errors"]] == ["query.colour"], (method, path)


def test_an_exhausted_connection_pool_is_answered_with_503(
    sqlite: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_connection(_session: object) -> list[PoolRow]:
        raise PoolTimeoutError("QueuePool limit of size 20 overflow 0 reached")

    monkeypatch.setattr(queries.pool, "unfinished_jobs", no_connection)
    response = local_api(sqlite, tmp_path).get(f"{PREFIX}/pool")
    assert response.status_code == 503
    assert response.json()["detail"] == "the database did not answer; the reason is in the API's log"


def test_an_unexpected_error_is_answered_with_500_and_its_traceback_is_logged(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store)
    (tmp_path / "exports").write_text("a file where a folder should be")
    api = TestClient(
        create_app(store, tmp_path / "exports", ask_for_keys=False), "http://localhost", raise_server_exceptions=False
    )
    response = api.get(f"{PREFIX}/runs/{RUN}/export")
    assert (response.status_code, response.headers["content-type"]) == (500, "application/problem+json")
    problem = {"type": "about:blank", "title": "Internal Server Error", "status": 500, "errors": []}
    assert response.json() == {**problem, "detail": "unexpected error; its traceback is in the API's log"}
    assert f"GET {PREFIX}/runs/{RUN}/export: unexpected error" in caplog.text
    assert "NotADirectoryError" in caplog.text
