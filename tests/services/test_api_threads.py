"""Requests that wait for a thread hold no transaction meanwhile, so that writers and other requests do not wait too."""

from __future__ import annotations

import inspect
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from anyio import to_thread
from api_examples import RUN, fill
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from services.api.app import PREFIX, create_app
from services.api.dependencies import own_threads
from storage import queries
from storage.session import CONNECTIONS, Store, open_store
from tests.api_server import served

MANY = 200  # more than the API's threads, and than its connections to the database


def test_a_run_can_write_while_there_are_more_requests_than_threads(
    store: Store, database_url: str, tmp_path: Path
) -> None:
    fill(store)
    reading = open_store(database_url, reads_wait_s=5.0)  # with more, the test would only fail later
    ended, writes = threading.Event(), 0

    def write() -> None:
        nonlocal writes
        while not ended.is_set():
            with store.write() as writing:
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
