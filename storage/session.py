"""Opening the store, and its transactions: `store.write()` and `store.read()`."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidatePoolError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from core.unicode import from_json, to_json
from storage.errors import StoreError
from storage.schema import migrate, require_current

# Below this, a checkpoint of the write-ahead log that meets another connection's reset can corrupt the database.
_WAL_IS_SAFE = (3, 51, 3)
_BUSY_SECONDS = 30.0
# JSON columns hold well-formed text, whatever is written, and give back well-formed text, whatever was stored before.
_JSON: dict[str, Any] = {"json_serializer": to_json, "json_deserializer": from_json}
# Connections of a process, at most. All are kept, since opening one takes longer than most reads, and the one used last
# comes first, since it has its statements prepared.
_POOL: dict[str, Any] = {"pool_size": 20, "max_overflow": 0, "pool_use_lifo": True}
_FRESH_SECONDS = 1.0  # so long after its last use a connection is taken for alive
_WRITE = "coevo_write"


class Store:
    """A database of known version. Safe to share between threads; each process opens its own."""

    def __init__(self, engine: Engine, address: str) -> None:
        self.address = address  # without the password
        self._writer = engine.execution_options(**{_WRITE: True})
        self._reader = _on_postgresql(engine, isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._once = _on_postgresql(engine, isolation_level="AUTOCOMMIT")

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction, committed at the end of the block and rolled back on an exception.

        On SQLite it holds the one write lock from its start (BEGIN IMMEDIATE), so that what it has read stays true.
        """
        with Session(self._writer) as session, session.begin():
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """One read-only transaction, which sees one state of the database throughout. Keep it short on SQLite: where
        there is no write-ahead log, writers wait for it."""
        # It is committed, though there is nothing to commit: psycopg forgets what it prepared when one is rolled back.
        with Session(self._reader) as session, session.begin():
            yield session

    @contextmanager
    def read_once(self) -> Iterator[Session]:
        """For a read of one statement, which sees one state by itself; a second one may see a later state.

        On PostgreSQL there is no transaction around it: to begin and end one are two of three round trips, in each of
        which a busy process lets go of the interpreter and waits for it again. So nothing there stops it from writing.
        """
        with Session(self._once) as session, session.begin():
            yield session

    def close(self) -> None:
        self._writer.dispose()


def open_store(url: str, create: bool = False) -> Store:
    """Open the database at `url` (`sqlite:///FILE` or `postgresql://…`).

    `create=True` makes the SQLite file where there is none, and creates or upgrades the tables; without it a missing
    or outdated database is a `StoreError`, which names the address (password masked) and what to do.
    """
    target = _parse(url)
    address = _masked(target)
    try:
        if target.get_backend_name() == "sqlite":
            _prepare_file(Path(target.database or ""), create)
        if create:
            _migrate(target)
        return _checked(target, address)
    except StoreError as error:
        raise StoreError(f"database {address}: {error}") from error
    except (DBAPIError, OSError) as error:
        reason = error.orig if isinstance(error, DBAPIError) else error
        raise StoreError(f"database {address}: cannot be opened: {str(reason).strip()}") from error


def _checked(target: URL, address: str) -> Store:
    store = Store(_engine(target), address)
    try:
        with store.read() as session:
            require_current(session.connection())
    except BaseException:
        store.close()
        raise
    return store


def _parse(url: str) -> URL:
    try:
        target = make_url(url)
    except (ArgumentError, ValueError) as error:
        shown = re.sub(r"//.*@", "//***@", url)
        raise StoreError(f"database {shown}: expected a URL, sqlite:///FILE or postgresql://…") from error
    backend = target.get_backend_name()
    if backend in {"postgresql", "postgres"}:
        return target.set(drivername="postgresql+psycopg")
    if backend != "sqlite" or not target.database or target.database == ":memory:":
        # A database in memory would be another one for each connection.
        raise StoreError(f"database {_masked(target)}: expected sqlite:///FILE or postgresql://…")
    return target.set(drivername="sqlite")


def _masked(target: URL) -> str:
    if "password" in target.query:
        target = target.update_query_dict({"password": "***"})
    return target.render_as_string(hide_password=True)


def _prepare_file(path: Path, create: bool) -> None:
    if create:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # questions are nobody else's to read
    elif not path.is_file():
        raise StoreError("there is no such file; check the address, or let `coevo up` or `coevo migrate` create it")


def _migrate(target: URL) -> None:
    # A migration that rebuilds a table on SQLite drops the old one, which must not cascade.
    engine = _engine(target, foreign_keys=False)
    try:
        with engine.execution_options(**{_WRITE: True}).begin() as connection:
            migrate(connection)
    finally:
        engine.dispose()


def _engine(target: URL, foreign_keys: bool = True) -> Engine:
    if target.get_backend_name() == "postgresql":
        engine = create_engine(target, **_JSON, **_POOL)
        _ping_idle_connections(engine)
        return engine
    engine = create_engine(target, connect_args={"timeout": _BUSY_SECONDS}, **_JSON, **_POOL)

    @event.listens_for(engine, "connect")
    def _connect(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # the driver begins nothing: `_begin` does
        journal = "WAL" if sqlite3.sqlite_version_info >= _WAL_IS_SAFE else "DELETE"
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        write = connection.get_execution_options().get(_WRITE, False)
        connection.exec_driver_sql(f"PRAGMA query_only = {'OFF' if write else 'ON'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _ping_idle_connections(engine: Engine) -> None:
    """Ask a connection that has rested whether it is alive before it is used, and replace it where it is not.

    A stage may take hours between two writes; the server, or a proxy, may have hung up meanwhile. SQLAlchemy's own
    `pool_pre_ping` would ask at every use.
    """

    @event.listens_for(engine, "checkin")
    def _rests(_connection: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
        entry.info["used"] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def _is_wanted(connection: DBAPIConnection, entry: ConnectionPoolEntry, _proxy: object) -> None:
        used = entry.info.get("used")  # None: it was opened just now
        if used is None or time.monotonic() - used < _FRESH_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError from error


def _on_postgresql(engine: Engine, **options: Any) -> Engine:
    """The engine with these options for its transactions; on SQLite as it is, where `_begin` sees to them."""
    return engine if engine.dialect.name == "sqlite" else engine.execution_options(**options)
