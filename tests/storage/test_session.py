from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from store_examples import fresh_run, in_four_threads, reads, writes

from storage import queries, schema
from storage.errors import StoreError
from storage.models import Base
from storage.schema import require_current
from storage.session import Store, open_store

on_postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
_Reading = AbstractContextManager[Session]
HEAD = ScriptDirectory.from_config(schema.alembic_config()).get_current_head()
_MIGRATION = f"""
import sqlalchemy as sa
from alembic import op

revision, down_revision = "9000", "{HEAD}"


def upgrade() -> None:
    op.add_column("runs", sa.Column("mood", sa.Text(), nullable=False, server_default="good"))
"""


def test_a_missing_file_is_named_and_not_created(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"^database sqlite:///.*/none/coevo\.db: "):
        open_store(f"sqlite:///{tmp_path}/none/coevo.db")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_database_is_named(postgresql_server: str) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        open_store(postgresql_server.replace("/postgres?", "/nowhere?"))


def test_an_unreachable_server_is_named_without_its_password() -> None:
    with pytest.raises(StoreError) as caught:
        open_store("postgresql://ann:secret@127.0.0.1:1/coevo?connect_timeout=5&password=hidden")
    words = ("ann:***@127.0.0.1:1/coevo", "secret", "hidden")
    assert [word in str(caught.value) for word in words] == [True, False, False]


@pytest.mark.parametrize("url", ["", "coevo.db", "sqlite://", "sqlite:///:memory:", "mysql://ann:secret@host/db"])
def test_an_unsupported_address_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match="sqlite:///FILE or postgresql://") as caught:
        open_store(url, create=True)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, but long enough to look at " * 50)
    before = (tmp_path / "notes.txt").read_bytes()
    with pytest.raises(StoreError, match=r"notes\.txt: "):
        open_store(f"sqlite:///{tmp_path}/notes.txt", create=True)
    assert (tmp_path / "notes.txt").read_bytes() == before


def test_the_error_for_a_database_without_tables_names_the_command(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "coevo.db").touch()
    with pytest.raises(StoreError, match="`coevo store migrate`"):
        open_store(database_url)


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("version", ["0025", "9999", "abc"])  # never released, newer than this coevo, another program's
def test_a_database_that_nothing_upgrades_is_left_alone(database_url: str, version: str, create: bool) -> None:
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(text(f"INSERT INTO alembic_version VALUES ('{version}')"))
    with pytest.raises(StoreError, match=rf"version {version}, expected {HEAD}: .* \(COEVO_DATABASE\)") as caught:
        open_store(database_url, create=create)
    assert ("never released" in str(caught.value)) == (version == "0025")
    assert inspect(engine).get_table_names() == ["alembic_version"]


def test_an_older_database_is_refused_until_it_is_upgraded(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(database_url, create=True)
    run = fresh_run(store)
    store.close()
    migrations = shutil.copytree(Path(schema.__file__).with_name("migrations"), tmp_path / "migrations")
    (migrations / "versions" / "9000_mood.py").write_text(_MIGRATION)
    newer = schema.alembic_config()
    newer.set_main_option("script_location", str(migrations))
    monkeypatch.setattr(schema, "alembic_config", lambda: newer)
    monkeypatch.setattr(schema, "_versions", lambda: ScriptDirectory.from_config(newer))
    with pytest.raises(StoreError, match=rf"{HEAD}, expected 9000.*`coevo store migrate`"):
        open_store(database_url)
    with open_store(database_url, create=True).read() as session:
        rows = session.execute(text("SELECT name, mood FROM runs")).all()
        assert rows == [(run, "good")]
        assert session.scalar(text("SELECT count(*) FROM coevo_v1_runs")) == 1


_ROWS_OF_0100 = """
INSERT INTO runs (name, seed, status, config, created_at, updated_at, tags, note)
VALUES ('old', 1, 'done', '{}', '2026-01-01 00:00:00', '2026-01-01 00:00:00', '[]', '');
INSERT INTO questions (id, run, iteration, "index", text, raw, seed) VALUES ('old/1/000000', 'old', 1, 0, '?', '?', 1);
INSERT INTO pseudo_labels (question_id, run, iteration, "index", verdict)
VALUES ('old/1/000000', 'old', 1, 0, 'duplicate');
INSERT INTO filter_stats
(run, iteration, candidates, kept, too_easy, too_hard, no_majority, malformed, duplicate, unknown)
VALUES ('old', 1, 1, 0, 0, 0, 0, 0, 1, 0)
"""


def test_the_rows_of_version_0100_have_no_gate(database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.begin() as connection:
        config = schema.alembic_config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0100")
        for statement in _ROWS_OF_0100.split(";"):
            connection.exec_driver_sql(statement)
    engine.dispose()
    with pytest.raises(StoreError, match=rf"0100, expected {HEAD}.*`coevo store migrate`"):
        open_store(database_url)
    store = reads(open_store(database_url, create=True))
    [label] = store.questions.labels_of("old", 1)
    assert (label.verdict, label.gate, store.figures.filter_stats_of("old")[1].refused) == ("duplicate", None, 0)


def test_models_and_migrations_agree(database_url: str) -> None:
    open_store(database_url, create=True).close()
    with create_engine(database_url).connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
        require_current(connection)


def test_creating_an_existing_database_keeps_its_rows_in_any_working_folder(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(database_url, create=True)
    run = fresh_run(store)
    monkeypatch.chdir(tmp_path)
    assert reads(open_store(database_url, create=True)).runs.get_run(run).name == run


def test_several_threads_can_create_a_database_at_once(database_url: str) -> None:
    barrier = threading.Barrier(4)

    def create() -> None:
        barrier.wait()
        open_store(database_url, create=True).close()

    in_four_threads(create)
    open_store(database_url).close()


def test_an_exception_rolls_back_the_whole_transaction(store: Store) -> None:
    run = fresh_run(store)

    def break_off() -> None:
        with store.write() as session:
            queries.runs.set_run_status(session, run, "running")
            raise InterruptedError

    with pytest.raises(InterruptedError):
        break_off()
    assert reads(store).runs.get_run(run).status == "created"


def test_a_read_cannot_write(store: Store) -> None:
    run = fresh_run(store)
    with pytest.raises(DBAPIError, match=r"read-?\s?only"), store.read() as session:
        queries.runs.set_run_status(session, run, "running")
    writes(store).runs.set_run_status(run, "running")  # the connection that refused can write afterwards


def test_a_read_does_not_see_a_write_that_happens_meanwhile(store: Store) -> None:
    run = fresh_run(store)
    wrote = threading.Event()

    def write() -> None:
        with store.write() as session:
            queries.runs.set_run_status(session, run, "running")
            wrote.set()

    writer = threading.Thread(target=write)
    with store.read() as session:
        assert queries.runs.get_run(session, run).status == "created"
        writer.start()
        assert wrote.wait(60)
        if store.address.startswith("postgresql"):
            writer.join()  # it has committed; on SQLite it now waits for this read
        assert queries.runs.get_run(session, run).status == "created"
    writer.join()
    assert reads(store).runs.get_run(run).status == "running"


def test_reading_and_writing_in_a_write_session_is_atomic_on_sqlite(tmp_path: Path) -> None:
    """Without BEGIN IMMEDIATE two threads would read the same number, or fail because the database is locked."""
    url = f"sqlite:///{tmp_path}/coevo.db"
    run = fresh_run(open_store(url, create=True))

    def count_up() -> None:
        mine = open_store(url)
        for _ in range(10):
            with mine.write() as session:
                step = len(queries.figures.train_metrics_of(session, run))
                queries.figures.add_train_metrics(
                    session, run=run, iteration=1, role="solver", step=step, metrics={"reward": 1.0}
                )
        mine.close()

    in_four_threads(count_up)
    assert [metric.step for metric in reads(open_store(url)).figures.train_metrics_of(run)] == list(range(40))


def test_sqlite_s_settings_protect_against_data_loss(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/coevo.db", create=True)
    with store.write() as session:
        settings = {
            name: session.scalar(text(f"PRAGMA {name}"))
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    journal = "wal" if sqlite3.sqlite_version_info >= (3, 51, 3) else "delete"
    assert settings == {"journal_mode": journal, "synchronous": 2, "foreign_keys": 1, "busy_timeout": 120_000}
    store.close()
    store = open_store(f"sqlite:///{tmp_path}/coevo.db", reads_wait_s=7)
    assert settings_of_read_write_read(store, "busy_timeout") == [7_000, 120_000, 7_000]


def test_reads_keep_less_of_a_sqlite_file_in_memory_than_writes(sqlite: Store) -> None:
    assert settings_of_read_write_read(sqlite, "cache_size") == [-512, -2_000, -512]  # negative: in kilobytes


def settings_of_read_write_read(store: Store, name: str) -> list[int]:
    """A setting of SQLite in a read, a write and a read on the same connection."""
    values = []
    for transaction in (store.read, store.write, store.read):
        with transaction() as session:
            values.append(session.execute(text(f"PRAGMA {name}")).scalar_one())
    return values


@on_postgresql  # SQLite's driver keeps its statements in any case
@pytest.mark.parametrize("reading", [Store.read, Store.read_once])
def test_frequent_statements_are_planned_once(store: Store, reading: Callable[[Store], _Reading]) -> None:
    for _ in range(20):  # psycopg prepares the sixth statement, and PostgreSQL keeps a plan after five more
        with reading(store) as session:
            queries.questions.questions_of(session, "nobody", 1)
    with reading(store) as session:
        generic_plans = session.execute(text("SELECT max(generic_plans) FROM pg_prepared_statements"))
        assert generic_plans.scalar_one() > 0


@on_postgresql
@pytest.mark.parametrize(("reading", "round_trips"), [(Store.read, 3), (Store.read_once, 1)])
def test_a_read_of_one_statement_is_one_round_trip(
    store: Store, reading: Callable[[Store], _Reading], round_trips: int, tmp_path: Path
) -> None:
    """`read` sends BEGIN, the statement and COMMIT, `read_once` the statement alone; neither tests the connection."""
    with (tmp_path / "trace").open("wb") as trace:
        with reading(store) as session:
            driver: Any = session.connection().connection.driver_connection
        # libpq writes every message of this connection, which the pool uses again because it was used last.
        driver.pgconn.trace(trace.fileno())
        with reading(store) as session:
            session.scalar(select(1))
        driver.pgconn.untrace()
    sent = [line.split("\t")[1:4] for line in (tmp_path / "trace").read_text().splitlines()]
    assert sum(message[0] == "F" and message[2] in ("Query", "Sync") for message in sent) == round_trips, sent


@on_postgresql
@pytest.mark.parametrize("reading", [Store.read, Store.read_once, Store.write])
def test_a_connection_that_the_server_closed_while_it_was_idle_is_replaced(
    store: Store, reading: Callable[[Store], _Reading], monkeypatch: pytest.MonkeyPatch, postgresql_server: str
) -> None:
    monkeypatch.setattr("storage.session._FRESH_SECONDS", 0.0)
    with store.read() as session:
        backend = session.scalar(text("SELECT pg_backend_pid()"))
    server = create_engine(postgresql_server)
    with server.connect() as connection:
        assert connection.scalar(text("SELECT pg_terminate_backend(:pid, 30000)"), {"pid": backend})
    server.dispose()
    with reading(store) as session:
        assert session.scalar(text("SELECT pg_backend_pid()")) != backend


def test_a_store_that_nothing_refers_to_has_no_connections(store: Store, database_url: str) -> None:
    """Stages open a store each, and none closes it."""
    gc.collect()
    gc.disable()
    try:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            with open_store(database_url).read() as session:
                assert session.scalar(text("SELECT 1")) == 1
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        gc.enable()
