"""Fixtures that all tests share: real databases (a SQLite file, a PostgreSQL server), real services, a real browser."""

from __future__ import annotations

import gc
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import hypothesis
import pytest
from playwright.sync_api import Browser, Page, Playwright, sync_playwright
from sqlalchemy import create_engine, make_url

from benchmarks.postgres import server_folder, temporary_postgresql
from core.grading.grader import Grader
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

# No deadline: how long one example takes depends on the machine's other work more than on the code.
hypothesis.settings.register_profile("coevo", deadline=None)
hypothesis.settings.load_profile("coevo")


# What the tests import is never freed. Without this, the collector would look at it again and again: while the modules
# are imported, and in every test.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


# Fixtures of services that a test or its module has to itself, or shares with the tests of its process.
_SERVICES = {"browser", "page", "prefect", "prefect_url", "postgresql_server", "own_postgresql", "own_ray", "_ray"}
# Tests for which the kind of database matters, because they are about SQL, connections, locks or leases.
_ON_EITHER_DATABASE = ("test_queries_", "test_session", "test_views", "test_ledger", "test_faults")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests by what they use: the marks say in which tier they run (CONTRIBUTING.md)."""
    for item in items:
        fixtures = {*getattr(item, "fixturenames", ())}
        if {"live", "live_gpus"} & fixtures:
            item.add_marker("live")
        if _SERVICES & fixtures:
            item.add_marker("heavy")
        if _database(item) == "postgresql":
            item.add_marker("heavy")
            if not item.path.name.startswith(_ON_EITHER_DATABASE):
                item.add_marker("slow")
    # What takes longest comes first: the tests of chaos, trainers and services.
    items.sort(key=lambda item: item.path, reverse=True)
    items.sort(key=lambda item: "chaos" not in item.path.parts)


def _database(item: pytest.Item) -> object:
    callspec = getattr(item, "callspec", None)
    return callspec and callspec.params.get("database_url")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of a PostgreSQL server that is started for the session and stopped after it."""
    with temporary_postgresql() as url:
        if url is None:
            pytest.skip("PostgreSQL: no server programs (initdb, pg_ctl) on this machine")
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database: a SQLite file that does not exist yet, or a new schema on the PostgreSQL server.
    Connections see only this schema; a new database for each test would cost 8 MB of files."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/coevo.db"
    return _new_schema(request.getfixturevalue("postgresql_server"))


def _new_schema(server: str) -> str:
    schema = f"test_{uuid4().hex}"
    _execute(server, f"CREATE SCHEMA {schema}")
    url = make_url(server).update_query_dict({"options": f"-csearch_path={schema}"})
    return url.render_as_string(hide_password=False)


def _execute(url: str, statements: str) -> None:
    engine = create_engine(make_url(url))
    with closing(engine.raw_connection()) as connection:  # without parameters, psycopg sends all statements at once
        connection.cursor().execute(statements)
        connection.commit()
    engine.dispose()


@pytest.fixture(scope="session")
def empty_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the tables, to copy: the migrations take ten times as long as a copy."""
    file = tmp_path_factory.mktemp("empty") / "coevo.db"
    open_store(f"sqlite:///{file}", create=True).close()
    return file


@pytest.fixture(scope="session")
def tables_on_postgresql(postgresql_server: str) -> str:
    """The SQL that makes the tables in a new schema: the migrations take several times as long."""
    url = _new_schema(postgresql_server)
    open_store(url, create=True).close()
    schema, folder = str(make_url(url).query["options"]).partition("=")[2], server_folder()
    assert folder is not None
    address = make_url(postgresql_server).set(drivername="postgresql").render_as_string(hide_password=False)
    dump = [folder / "pg_dump", "--inserts", f"--schema={schema}", f"--dbname={address}"]
    dumped = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    not_wanted = ("\\", f"CREATE SCHEMA {schema}", "SELECT pg_catalog.set_config('search_path'")  # \\ is for psql
    return "\n".join(line for line in dumped.splitlines() if not line.startswith(not_wanted)).replace(f"{schema}.", "")


@pytest.fixture
def store(database_url: str, tmp_path: Path, empty_sqlite: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    """A store with its tables and no rows, on SQLite and on PostgreSQL."""
    if database_url.startswith("sqlite"):
        shutil.copyfile(empty_sqlite, tmp_path / "coevo.db")
    else:
        _execute(database_url, request.getfixturevalue("tables_on_postgresql"))
    opened = open_store(database_url)
    yield opened
    opened.close()


@pytest.fixture
def sqlite(tmp_path: Path, empty_sqlite: Path) -> Iterator[Store]:
    """A store on SQLite, for tests that do not depend on the kind of database. If `tmp_path` is coevo's home, it is the
    home's own database."""
    shutil.copyfile(empty_sqlite, tmp_path / "coevo.db")
    opened = open_store(f"sqlite:///{tmp_path}/coevo.db")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, empty_sqlite: Path) -> Iterator[Store]:
    """A store on SQLite for a module whose tests all read the same rows."""
    file = tmp_path_factory.mktemp("stored") / "coevo.db"
    shutil.copyfile(empty_sqlite, file)
    opened = open_store(f"sqlite:///{file}")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader() as opened:
        yield opened


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
    """Give clients in the test's own process the key of the applications that the test sends requests to."""
    if "live" in request.fixturenames:
        live: Live = request.getfixturevalue("live")
        monkeypatch.setenv(access.KEY, access.key_of(live.services.ray_token))


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process has been told to hide, it hides to its end: `core.texts.redaction.hide`."""
    monkeypatch.setattr("core.texts.redaction._known", set())


@contextmanager
def opened_browser(*flags: str) -> Iterator[Browser]:
    """Chromium for the block, started with these `flags` beside those of all tests."""
    # The shell, which has no windows, needs a third less of the processor.
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
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
    """The Playwright that an enclosing block has started, or a new one: a thread can have only one at a time."""
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
    """Chromium for one module, not for the session: while it is open, no other test of the process can run an event
    loop."""
    with opened_browser() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a real browser in a new context, so that it has no cookies or storage of earlier pages."""
    with browser.new_context(viewport={"width": 1440, "height": 1600}) as context:
        opened = context.new_page()
        opened.set_default_timeout(60_000)
        yield opened
