"""What HTTP itself asks of the API: HEAD, conditional requests, ranges, redirects, encodings; and its health check."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_examples import RUN, fill
from fastapi.testclient import TestClient
from starlette.types import ASGIApp

from services.api.app import PREFIX, create_app
from storage.session import Store, open_store
from tests.api_server import served

FILE = f"{PREFIX}/runs/{RUN}/export?what=questions&format=csv"
OWN = {"base_url": "http://127.0.0.1", "raise_server_exceptions": False}


@pytest.fixture
def app(sqlite: Store, tmp_path: Path) -> ASGIApp:
    fill(sqlite)
    return create_app(sqlite, tmp_path / "exports", ask_for_keys=False)


@pytest.fixture
def api(app: ASGIApp) -> Iterator[TestClient]:
    with TestClient(app, **OWN) as client:
        yield client


@pytest.mark.parametrize(
    "path",
    [
        *("/healthz", "/", "/runs/demo", "/static/app.js", "/api/docs", "/api/openapi.json", "/metrics"),
        *(f"{PREFIX}/runs", f"{PREFIX}/runs/{RUN}", f"{PREFIX}/runs/nobody", f"{PREFIX}/nothing", FILE),
        f"{PREFIX}/runs?limit=x",
    ],
)
def test_head_has_the_headers_of_get_and_no_body(path: str, app: ASGIApp) -> None:
    with served(app) as url, httpx.Client(trust_env=False) as http:
        get, head = http.get(url + path), http.head(url + path, headers={"Range": "bytes=0-3"})
        assert http.get(url + path).status_code == get.status_code, "the connection is still usable"
    assert (head.status_code, head.content) == (get.status_code, b"")
    changing = {"date", "connection"} | ({"content-length"} if path == "/metrics" else set())
    assert {name: value for name, value in head.headers.items() if name not in changing} == {
        name: value for name, value in get.headers.items() if name not in changing
    }


def test_head_reads_no_file_and_is_no_way_to_start_something(api: TestClient, tmp_path: Path) -> None:
    assert api.head(FILE).status_code == 200
    [file] = (tmp_path / "exports").rglob("*.csv")
    size = file.stat().st_size
    file.chmod(0)
    response = api.head(FILE)
    assert (response.status_code, response.headers["content-length"]) == (200, str(size))
    assert api.head(f"{PREFIX}/runs/{RUN}/cancel").status_code == 405


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        (lambda tag: tag, 304),
        (lambda tag: f"W/{tag}", 304),
        (lambda tag: f'"x", {tag}', 304),
        (lambda _: "*", 304),
        (lambda _: '"x"', 200),
        (lambda tag: tag.strip('"'), 200),
        (lambda _: "", 200),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", [FILE, "/", "/runs/demo", "/api/docs", "/static/app.js"])
def test_a_file_that_the_client_has_is_not_sent_again(
    path: str, method: str, condition: Callable[[str], str], status: int, api: TestClient
) -> None:
    tag = api.get(path).headers["etag"]
    response = api.request(method, path, headers={"If-None-Match": condition(tag), "Range": "bytes=1-"})
    assert response.status_code == (206 if (status, method) == (200, "GET") else status)
    assert response.headers["etag"] == tag
    if status == 304:
        assert response.content == b""


@pytest.mark.parametrize(
    ("given", "status"),
    [("bytes=5-2", 400), ("pages=1-2", 400), ("bytes", 400), ("bytes=x-", 400), ("bytes=99999999-", 416)],
)
def test_a_wrong_range_is_refused_like_everything_else(given: str, status: int, api: TestClient) -> None:
    response = api.get(FILE, headers={"Range": given})
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    assert response.json()["status"] == status
    assert "Range" in response.json()["detail"]
    if status == 416:
        assert response.headers["content-range"].startswith("bytes */")


@pytest.mark.parametrize("path", [f"{PREFIX}/runs/{RUN}/", f"{PREFIX}/runs/", "/healthz/", "/metrics/"])
def test_no_answer_repeats_the_host_that_a_client_sent(path: str, sqlite: Store, tmp_path: Path) -> None:
    api = TestClient(create_app(sqlite, tmp_path, ask_for_keys=True))
    response = api.get(path, headers={"Host": "evil.example"}, follow_redirects=False)
    assert (response.status_code, response.headers.get("location")) == (404, None)
    assert "evil.example" not in response.text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
def test_a_body_in_another_encoding_is_refused(encoding: str, api: TestClient) -> None:
    body = json.dumps({"note": "x"})
    kind = {"Content-Type": "application/json"}
    notes = f"{PREFIX}/runs/{RUN}/notes"
    assert api.post(notes, content=body.encode(), headers=kind).status_code == 200
    response = api.post(notes, content=body.encode(encoding), headers=kind)
    assert (response.status_code, response.headers["content-type"]) == (400, "application/problem+json")


def lock(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    return connection


@pytest.mark.parametrize(
    "harm",
    [
        lock,
        lambda file: file.rename(file.with_suffix(".away")),
        lambda file: file.write_bytes(b"no database" * 1_000),
        lambda file: (file.unlink(), file.write_bytes(b"no database" * 1_000)),
        lambda file: (file.unlink(), file.symlink_to("/etc/passwd")),
        lambda file: os.replace(shutil.copyfile(file, file.with_suffix(".copy")), file),
    ],
    ids=["locked", "gone", "overwritten", "garbage", "a link", "another file"],
)
def test_the_api_is_not_healthy_without_its_database(harm: Callable[[Path], object], tmp_path: Path) -> None:
    file = tmp_path / "a?b" / "coevo.db"
    file.parent.mkdir()
    store = open_store(f"sqlite:///{tmp_path}/a%3Fb/coevo.db", create=True)
    api: Any = TestClient(create_app(store, tmp_path / "exports", ask_for_keys=False), **OWN)
    assert api.get("/healthz").status_code == 200
    harmed = harm(file)
    assert api.get("/healthz").status_code == 503
    if isinstance(harmed, sqlite3.Connection):
        harmed.close()
    store.close()


def test_the_api_is_healthy_with_either_database(store: Store, tmp_path: Path) -> None:
    api: Any = TestClient(create_app(store, tmp_path / "exports", ask_for_keys=False), **OWN)
    assert api.get("/healthz").json() == {"status": "ok"}
