"""Exports over REST when many clients ask at once, and when a client has disconnected."""

from __future__ import annotations

import hashlib
import io
import json
import random
import threading
import zipfile
from collections.abc import Iterator
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

from services.api import export_writing
from services.api.app import PREFIX, create_app
from services.api.routes import exports as export_routes
from storage import queries
from storage.exports import rows as export_rows
from storage.exports import runs as exports
from storage.exports.rows import Page
from storage.session import Store
from tests.api_server import served

FILE, OF_RUNS = f"{PREFIX}/runs/{RUN}/export", f"{PREFIX}/export"  # of a run, and of several
_MANY = 50  # more than FastAPI has threads


@pytest.fixture
def store(sqlite: Store) -> Store:
    fill(sqlite)
    return sqlite


def test_simultaneous_requests_make_an_export_once_and_do_not_block_the_health_check(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, written = threading.Event(), []
    write, get_run = exports.write_rows, queries.runs.get_run

    def slow_write(file: Any, *arguments: Any) -> None:
        written.append(file)
        assert may_go_on.wait(60)
        write(file, *arguments)

    def slow_run(*arguments: Any) -> Any:
        assert may_go_on.wait(60)
        return get_run(*arguments)

    monkeypatch.setattr(exports, "write_rows", slow_write)
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


@pytest.fixture
def held(store: Store, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Exports write one page, of random texts, and then wait for this event."""
    may_go_on, pages_of = threading.Event(), exports.pages_of
    texts = random.Random(0)

    def held_pages(*arguments: Any) -> Iterator[Page]:
        for number, (questions, rows) in enumerate(pages_of(*arguments)):
            assert number == 0 or may_go_on.wait(60)
            yield Page(questions, [{**row, "text": texts.randbytes(40_000).hex()} for row in rows])

    monkeypatch.setattr(export_rows, "_QUESTIONS", 1)
    monkeypatch.setattr(exports, "pages_of", held_pages)
    monkeypatch.setattr(export_writing, "_SILENCE_S", 0.01)
    monkeypatch.setattr(export_writing, "PATIENCE_S", 0.01)
    monkeypatch.setattr(export_routes, "PATIENCE_S", 0.01)
    return may_go_on


@pytest.mark.parametrize(("path", "runs"), [(FILE, None), (OF_RUNS, RUN)])
@pytest.mark.parametrize("kind", exports.FORMATS)
def test_a_file_is_sent_while_it_is_written_to_all_who_ask_for_it(
    store: Store, tmp_path: Path, held: threading.Event, kind: str, path: str, runs: str | None
) -> None:
    app = create_app(store, tmp_path / "exports", ask_for_keys=False)
    with served(app) as url, ThreadPoolExecutor(2) as clients, httpx.Client(trust_env=False, timeout=60) as http:
        address, parameters = f"{url}{path}", {"format": kind, **({"run": runs} if runs else {})}
        with (
            http.stream("GET", address, params=parameters) as first,
            http.stream("GET", address, params=parameters) as second,
            http.stream("GET", f"{address}/manifest", params=parameters) as manifest,
        ):
            pieces = [stream.iter_raw() for stream in (first, second, manifest)]
            begun = [next(of_stream) for of_stream in pieces]
            assert (all(begun), begun[2].strip()) == (True, b"")
            head = clients.submit(http.head, address, params=parameters)
            held.set()
            whole = [piece + b"".join(of_stream) for piece, of_stream in zip(begun, pieces, strict=True)]
        again, asked = http.get(address, params=parameters), head.result()  # before the client closes its connections
    described = json.loads(whole[2])
    assert whole[0] == whole[1] == again.content
    assert hashlib.sha256(whole[0]).hexdigest() == described["sha256"]
    assert again.headers["etag"] == asked.headers["etag"] == f'"{described["sha256"]}"'
    assert first.headers["content-disposition"] == again.headers["content-disposition"]
    assert first.headers["content-type"] == again.headers["content-type"]
    if kind == "huggingface":
        with zipfile.ZipFile(io.BytesIO(whole[0])) as archive:
            assert archive.testzip() is None


@pytest.mark.parametrize("path", [FILE, f"{OF_RUNS}?run={RUN}"])
def test_a_file_whose_writing_ends_with_the_server_is_not_taken_for_complete(
    store: Store, tmp_path: Path, held: threading.Event, path: str
) -> None:
    app = create_app(store, tmp_path / "exports", ask_for_keys=False)
    with served(app) as url, httpx.Client(trust_env=False, timeout=60) as http:
        with http.stream("GET", f"{url}{path}") as response:
            pieces = response.iter_raw()
            assert next(pieces)
            app.state.ending.set()
            held.set()
            with pytest.raises(httpx.RemoteProtocolError):
                assert not [*pieces]
        app.state.ending.clear()
        assert not [*(tmp_path / "exports").rglob("*.jsonl*")]
        assert http.get(f"{url}{path}").status_code == 200


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
