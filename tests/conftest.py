"""Databases for real: a SQLite file, and a PostgreSQL server started for the session. Services for real, too."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import hypothesis
import pytest
from playwright.sync_api import Browser, Page, Playwright, sync_playwright
from sqlalchemy import create_engine, make_url, text

from benchmarks.postgres import temporary_postgresql
from services.inference import access
from storage.session import Store, open_store
from tests.live import Live, live_services

_CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# How long one example takes says more about the machine's other work than about the code.
hypothesis.settings.register_profile("coevo", deadline=None)
hypothesis.settings.load_profile("coevo")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that have services of their own: `make test` runs them one after the other, the others in two
    processes before."""
    for item in items:
        if {"live", "gpus"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("live")
    items.sort(key=lambda item: item.path, reverse=True)  # those of trainers and services take longest: so they begin


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of a server of our own, gone after the session."""
    with temporary_postgresql() as url:
        if url is None:
            pytest.skip("PostgreSQL: no server programs (initdb, pg_ctl) on this machine")
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database: a SQLite file that is not there yet, or a schema of its own on the server, which is
    what a connection sees (a database of its own would be 8 MB of files a test)."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/coevo.db"
    server = make_url(request.getfixturevalue("postgresql_server"))
    schema = f"test_{uuid4().hex}"
    engine = create_engine(server)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    engine.dispose()
    return server.update_query_dict({"options": f"-csearch_path={schema}"}).render_as_string(hide_password=False)


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    opened = open_store(database_url, create=True)
    yield opened
    opened.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Store]:
    """One database, the home's own where `tmp_path` is the home, for what does not depend on which it is."""
    opened = open_store(f"sqlite:///{tmp_path}/coevo.db", create=True)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def prefect_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prefect server without a worker."""
    from tests.services.prefect_server import prefect_server  # Prefect reads its settings when it is imported

    with prefect_server(tmp_path_factory.mktemp("prefect")) as url:
        yield url


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Ray, Serve, Prefect and the flow runner, started for the session."""
    with live_services(tmp_path_factory.mktemp("home")) as services:
        yield services


@pytest.fixture(autouse=True)
def _inference_key(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients in the test's own process have the key of the applications that the test asks."""
    if "live" in request.fixturenames:
        live: Live = request.getfixturevalue("live")
        monkeypatch.setenv(access.KEY, access.key_of(live.services.ray_token))


@contextmanager
def opened_browser(*flags: str) -> Iterator[Browser]:
    """Chromium, for the block, with more `flags` than it has in every test."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    with _playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*_CHROMIUM_FLAGS, *flags])
        try:
            yield browser
        finally:
            browser.close()


_started: list[Playwright] = []


@contextmanager
def _playwright() -> Iterator[Playwright]:
    """The one that a block around this one has started, or one for this block: a thread can have one at a time."""
    if _started:
        yield _started[0]
        return
    with sync_playwright() as playwright:
        _started.append(playwright)
        try:
            yield playwright
        finally:
            _started.clear()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the session: while it is there, no other test of its process can run an event loop."""
    with opened_browser() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a real browser, which remembers nothing of the pages before it."""
    with browser.new_context(viewport={"width": 1440, "height": 1600}) as context:
        opened = context.new_page()
        opened.set_default_timeout(60_000)
        yield opened
