"""Opens the store, and begins its transactions: `store.write()` and `store.read()`."""

from __future__ import annotations

import re
import sqlite3
import time
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, select
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidatePoolError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from core.processes.faultpoints import faultpoint
from core.texts.unicode import to_json
from storage import letter_case
from storage.errors import NotThere, StoreError
from storage.schema import migrate, require_current
from storage.trouble import reason_of

# In earlier versions of SQLite, a checkpoint of the write-ahead log can corrupt the database if another connection
# resets the log at the same time.
_WAL_SAFE_SINCE = (3, 51, 3)
# How long a transaction of SQLite waits for others. A run would fail at the end of it, and on a busy machine one long
# read keeps others waiting: without the log, it blocks a writer's commit, and that blocks all new readers.
_BUSY_SECONDS = 120.0
_JSON: dict[str, Any] = {"json_serializer": to_json}  # makes all text well-formed
# What a transaction raises while the database is busy or gone, or while all of this process's connections are in use.
DATABASE_ERRORS = (DBAPIError, PoolTimeoutError)
CONNECTIONS = 20  # the most that a process has to the database
# All are kept open, because opening one takes longer than most reads. The one that was used last is taken first,
# because it has its statements prepared.
_POOL: dict[str, Any] = {"pool_size": CONNECTIONS, "max_overflow": 0, "pool_use_lifo": True}
# How much of a SQLite file each connection keeps in memory, in kilobytes. The operating system keeps the file's pages
# too, so reads need little: all connections of a process would hold 40 MB with SQLite's own 2 MB. A write that changes
# more than its cache holds locks the file before its commit, so writes keep SQLite's own size.
_READ_CACHE_KB, _WRITE_CACHE_KB = 512, 2_000
_FRESH_SECONDS = 1.0  # for this long after its last use, a connection is assumed to be alive
_WRITE = "coevo_write"
_ALIVE_SECONDS = 2.0  # in which a database must answer that is asked whether it does


class Store:
    """A database whose tables have the expected version. Threads may share a store; each process opens its own.

    Its connections are closed when nothing refers to the store any more. An engine alone is part of a cycle, so it
    would keep its connections until Python looks for cycles.
    """

    def __init__(self, engine: Engine, address: str) -> None:
        self.address = address  # without the password
        self._file = _file_of(engine.url.database or "") if engine.dialect.name == "sqlite" else None
        self._writer = engine.execution_options(**{_WRITE: True})
        self._reader = _on_postgresql(engine, isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._autocommit = _on_postgresql(engine, isolation_level="AUTOCOMMIT")
        # Not at the exit: a forked process would close the connections of the one that it was forked from.
        weakref.finalize(self, engine.dispose).atexit = False

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction, committed at the end of the block and rolled back on an exception.

        On SQLite it holds the only write lock from its start (BEGIN IMMEDIATE), so that what it has read stays true.
        """
        with Session(self._writer) as session, session.begin():
            yield session
            faultpoint("transaction complete")
        faultpoint("transaction committed")

    @contextmanager
    def read(self) -> Iterator[Session]:
        """One read-only transaction, which sees one state of the database throughout. Keep it short on SQLite: without
        the write-ahead log, writers wait for it."""
        # It is committed although it wrote nothing, because psycopg forgets its prepared statements at a rollback.
        with Session(self._reader) as session, session.begin():
            yield session

    @contextmanager
    def read_once(self) -> Iterator[Session]:
        """For a single read statement, which sees one state of the database. A second statement may see a later state.

        On PostgreSQL there is no transaction around the statement. To begin and to end one would be two of three round
        trips, and in each of them a busy process releases the interpreter lock and waits for it again. Without the
        read-only transaction, PostgreSQL does not refuse writes here.
        """
        with Session(self._autocommit) as session, session.begin():
            yield session

    def refuse_lost(self) -> None:
        """Raise `StoreError` unless the database answers within seconds. On SQLite also if its file is gone, is no
        database any more, or was replaced: the connections of this store still have the earlier one open."""
        path = self._writer.url.database or ""
        try:
            if self._writer.dialect.name == "sqlite":
                address = f"{Path(path).absolute().as_uri()}?mode=rw"
                with closing(sqlite3.connect(address, uri=True, timeout=_ALIVE_SECONDS)) as connection:
                    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            else:
                with self.read_once() as session:
                    session.execute(select(1))
            replaced = self._file is not None and _file_of(path) != self._file
        except (sqlite3.Error, OSError, *DATABASE_ERRORS) as error:
            raise StoreError(f"database {self.address}: {error}") from error
        if replaced:
            raise StoreError(f"database {self.address}: its file was replaced; start this process again")

    def close(self) -> None:
        self._writer.dispose()


def _file_of(path: str) -> tuple[int, int]:
    """What tells a file from another one that takes its name."""
    status = Path(path).stat()
    return status.st_dev, status.st_ino


def open_store(url: str, create: bool = False, reads_wait_s: float = _BUSY_SECONDS) -> Store:
    """Open the database at `url` (`sqlite:///FILE` or `postgresql://…`).

    `create=True` creates the SQLite file if it is missing, and creates or upgrades the tables. Without it, a missing
    file raises `NotThere`, and an outdated database another `StoreError`. The message has the address, with the
    password masked, and says what to do.

    On SQLite a read that had to wait for `reads_wait_s` seconds fails. A server waits less, since its client waits too.
    """
    try:
        target = make_url(url)
    except (ArgumentError, ValueError) as error:
        shown = re.sub(r"//.*@", "//***@", url)
        raise StoreError(f"database {shown}: expected a URL, sqlite:///FILE or postgresql://…") from error
    address = _masked(target)
    if target.get_backend_name() in {"postgresql", "postgres"}:
        target = target.set(drivername="postgresql+psycopg")
    elif target.get_backend_name() == "sqlite" and target.database and target.database != ":memory:":
        target = target.set(drivername="sqlite")
    else:  # each connection would have an in-memory database of its own
        raise StoreError(f"database {address}: expected sqlite:///FILE or postgresql://…")
    address = _masked(target)
    try:
        if target.get_backend_name() == "sqlite":
            path = Path(target.database or "")
            if create:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # other users must not read the questions
            elif not path.is_file():
                raise NotThere(
                    "there is no such file; check the address, or let `coevo up` or `coevo store migrate` create it"
                )
        if create:
            # On SQLite, a migration may rebuild a table and drop the old one. With foreign keys on, the drop would
            # delete the rows that refer to the table.
            engine = _engine(target, foreign_keys=False)
            try:
                with engine.execution_options(**{_WRITE: True}).begin() as connection:
                    migrate(connection)
            finally:
                engine.dispose()
        store = Store(_engine(target, reads_wait_s=reads_wait_s), address)
        try:
            with store.read() as session:
                require_current(session.connection())
        except BaseException:
            store.close()
            raise
        return store
    except StoreError as error:
        raise type(error)(f"database {address}: {error}") from error
    except (DBAPIError, OSError) as error:
        raise StoreError(f"database {address}: cannot be opened: {reason_of(error)}") from error


def _masked(target: URL) -> str:
    if "password" in target.query:
        target = target.update_query_dict({"password": "***"})
    return target.render_as_string(hide_password=True)


def _engine(target: URL, foreign_keys: bool = True, reads_wait_s: float = _BUSY_SECONDS) -> Engine:
    if target.get_backend_name() == "postgresql":
        engine = create_engine(target, **_JSON, **_POOL)

        # Ping an idle connection before it is used again, and replace it if it is dead: a stage may take hours between
        # two writes, and meanwhile the server or a proxy may close the connection. SQLAlchemy's own `pool_pre_ping`
        # would ping at every use.
        @event.listens_for(engine, "checkin")
        def _checked_in(_connection: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
            entry.info["last_used"] = time.monotonic()

        @event.listens_for(engine, "checkout")
        def _checked_out(connection: DBAPIConnection, entry: ConnectionPoolEntry, _proxy: object) -> None:
            last_used = entry.info.get("last_used")  # None: it was opened just now
            if last_used is None or time.monotonic() - last_used < _FRESH_SECONDS:
                return
            try:
                engine.dialect.do_ping(connection)
            except engine.dialect.loaded_dbapi.Error as error:
                raise InvalidatePoolError from error

        return engine
    engine = create_engine(target, connect_args={"timeout": reads_wait_s}, **_JSON, **_POOL)

    @event.listens_for(engine, "connect")
    def _connect(connection: sqlite3.Connection, _record: object) -> None:
        letter_case.add_to(connection)
        connection.isolation_level = None  # the driver begins no transactions: `_begin` does
        journal = "WAL" if sqlite3.sqlite_version_info >= _WAL_SAFE_SINCE else "DELETE"
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        write = connection.get_execution_options().get(_WRITE, False)
        busy_ms = round(1_000 * (_BUSY_SECONDS if write else reads_wait_s))
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {busy_ms}")
        connection.exec_driver_sql(f"PRAGMA cache_size = -{_WRITE_CACHE_KB if write else _READ_CACHE_KB}")
        connection.exec_driver_sql(f"PRAGMA query_only = {'OFF' if write else 'ON'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _on_postgresql(engine: Engine, **options: Any) -> Engine:
    """The engine with these options for its transactions. On SQLite it stays as it is: `_begin` does this."""
    return engine if engine.dialect.name == "sqlite" else engine.execution_options(**options)
