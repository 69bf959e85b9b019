"""Exports over REST when many clients ask at once, and when a client has disconnected."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from api_examples import RUN, fill
from arrivals import Arrivals
from fastapi.testclient import TestClient
from starlette.types import Message

from services.api.app import PREFIX, create_app
from storage import exports, queries
from storage.session import Store
from tests.api_server import served

FILE = f"{PREFIX}/runs/{RUN}/export"
_MANY = 50  # more than FastAPI has threads


@pytest.fixture
def store(sqlite: Store) -> Store:
    fill(sqlite)
    return sqlite


def test_simultaneous_requests_make_an_export_once_and_do_not_block_the_health_check(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, written = threading.Event(), list[Path]()
    write, get_run = exports._write, queries.runs.get_run

    def slow_write(path: Path, *arguments: Any) -> Any:
        written.append(path)
        assert may_go_on.wait(60)
        return write(path, *arguments)

    def slow_run(*arguments: Any) -> Any:
        assert may_go_on.wait(60)
        return get_run(*arguments)

    monkeypatch.setattr(exports, "_write", slow_write)
    app = Arrivals(create_app(store, tmp_path / "exports", ask_for_keys=False))
    with served(app) as url, ThreadPoolExecutor(_MANY) as clients, httpx.Client(trust_env=False, timeout=60) as http:
        same = [clients.submit(http.get, f"{url}{FILE}") for _ in range(8)]
        app.wait_for(8)
        assert http.get(f"{url}/healthz").status_code == 200
        # These requests occupy every thread that routes share.
        monkeypatch.setattr(queries.runs, "get_run", slow_run)
        others = [clients.submit(http.get, f"{url}{PREFIX}/runs/{RUN}") for _ in range(_MANY - 8)]
        app.wait_for(1 + len(others))
        assert http.get(f"{url}/healthz").status_code == 200
        may_go_on.set()
        responses = [request.result() for request in (*same, *others)]
    assert {response.status_code for response in responses} == {200}
    assert len({response.content for response in responses[:8]}) == 1
    assert len(written) == 1


def test_no_export_is_begun_for_a_client_that_has_disconnected(store: Store, tmp_path: Path) -> None:
    sent: list[Message] = []

    async def disconnected() -> Message:
        return {"type": "http.disconnect"}

    async def record(message: Message) -> None:
        sent.append(message)

    async def ask() -> None:
        app = create_app(store, tmp_path / "exports", ask_for_keys=False)
        scope = {"type": "http", "method": "GET", "path": FILE, "query_string": b"", "server": ("x", 1)}
        await app({**scope, "headers": [(b"host", b"localhost")]}, disconnected, record)

    anyio.run(ask)
    assert [message["status"] for message in sent if message["type"] == "http.response.start"] == [503]
    assert not (tmp_path / "exports").exists()


def test_an_application_that_ends_tells_its_exports(store: Store, tmp_path: Path) -> None:
    app = create_app(store, tmp_path, ask_for_keys=False)
    for _ in range(2):
        with TestClient(app):
            assert not app.state.ending.is_set()
        assert app.state.ending.is_set()
