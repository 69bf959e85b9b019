"""Requests that wait for a thread hold no transaction meanwhile, and slow routes leave threads to the others."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio import to_thread
from api_examples import RUN
from arrivals import Arrivals
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from services.api.app import PREFIX, create_app
from services.api.dependencies import frequent_route, own_threads
from services.api.installation import Installation, QuestionSets
from services.api.routes import comparisons
from storage import queries
from storage.errors import StoreError
from storage.session import CONNECTIONS, Store, open_store
from tests.api_server import served

MANY = 200  # more than the API's threads, and than its connections to the database
WAITING = 45  # also more, of comparisons
FEW, REQUESTS = 3, 8


def test_a_run_can_write_while_there_are_more_requests_than_threads(
    filled: Store, database_url: str, tmp_path: Path
) -> None:
    reading = open_store(database_url, reads_wait_s=5.0)  # with more, the test would only fail later
    ended, writes = threading.Event(), 0

    def write() -> None:
        nonlocal writes
        while not ended.is_set():
            with filled.write() as writing:
                queries.run_notes.annotate(writing, RUN, add=[f"tag-{writes % 5}"])
            writes += 1

    path = f"{PREFIX}/runs/{RUN}/training/solver/1/steps"
    with (
        served(create_app(reading, tmp_path, ask_for_keys=False)) as url,
        ThreadPoolExecutor(MANY + 1) as threads,
        httpx.Client(trust_env=False, timeout=60, limits=httpx.Limits(max_keepalive_connections=0)) as http,
    ):
        writer = threads.submit(write)
        try:
            requests = [threads.submit(http.get, f"{url}{path}") for _ in range(MANY)]
            statuses = Counter(request.result().status_code for request in requests)
        finally:
            ended.set()
        writer.result()
    reading.close()
    assert statuses == {200: MANY}
    assert writes > 0


def test_no_thread_waits_for_a_connection(sqlite: Store, tmp_path: Path) -> None:
    app = create_app(sqlite, tmp_path, ask_for_keys=False)

    @app.get("/threads")
    async def shared_threads() -> float:
        return to_thread.current_default_thread_limiter().total_tokens

    with served(app) as url:
        shared = httpx.get(f"{url}/threads", trust_env=False).json()
    assert shared >= 10
    assert own_threads.keys() == {"frequent routes", "comparisons", "exports", "health"}
    assert shared + sum(own_threads.values()) == CONNECTIONS


def test_no_dependency_keeps_anything_open_while_its_request_waits_for_a_thread(sqlite: Store, tmp_path: Path) -> None:
    """FastAPI closes what a dependency opens after it has waited for a thread, and has sent the response."""

    def dependencies_of(dependant: Dependant) -> Iterator[Dependant]:
        for dependency in dependant.dependencies:
            yield dependency
            yield from dependencies_of(dependency)

    routes = [route for route in create_app(sqlite, tmp_path, ask_for_keys=True).routes if isinstance(route, APIRoute)]
    calls = {dependency.call for route in routes for dependency in dependencies_of(route.dependant)}
    assert len(calls) > 5
    generators = [call for call in calls if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call)]
    assert generators == []


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
    with served(app) as url, ThreadPoolExecutor(WAITING) as clients, httpx.Client(trust_env=False, timeout=20) as http:
        requests = [clients.submit(httpx.get, f"{url}{PREFIX}/{path}", timeout=60) for _ in range(WAITING)]
        app.wait_for(WAITING)
        try:
            assert http.get(f"{url}/healthz").status_code == 200
            assert http.get(f"{url}{PREFIX}/experiments").status_code == 200
        finally:
            may_end.set()
        assert {request.result().status_code for request in requests} == {409}


def test_frequent_routes_use_few_threads_and_other_routes_answer_meanwhile() -> None:
    app, gate = FastAPI(), threading.Event()
    inside = threading.Semaphore(0)

    @app.get("/most/{number}")
    @frequent_route
    def most(number: int) -> int:
        inside.release()
        gate.wait()
        return number

    @app.get("/other")
    def other() -> str:
        return "answered"

    async def ask() -> tuple[list[int], bool, str]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            requests = [asyncio.create_task(client.get(f"/most/{number}")) for number in range(REQUESTS)]
            for _ in range(FEW):
                assert await asyncio.to_thread(inside.acquire, timeout=60)
            meanwhile = (await client.get("/other")).json()
            more = inside.acquire(blocking=False)
            gate.set()
            return [response.json() for response in await asyncio.gather(*requests)], more, meanwhile

    answers, more, meanwhile = asyncio.run(ask())
    assert (answers, more, meanwhile) == (list(range(REQUESTS)), False, "answered")
