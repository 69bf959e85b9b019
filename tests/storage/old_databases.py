"""Databases as earlier versions of coevo made them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from alembic import command
from sqlalchemy import Connection, MetaData, Table, create_engine

from core.settings.config import CoEvolution, RunConfig
from storage.schema import alembic_config


def as_stored_by_0010(config: RunConfig) -> dict[str, Any]:
    """The configuration as version 0010 stored it, when every run had the settings of both kinds."""
    stored = {**config.model_dump(mode="json", exclude={"kind"}), "pool": {"priority": 0}}  # 0012 removes the pool
    if isinstance(config, CoEvolution):
        return {**stored, "prompts": None}
    newer = {"kind": True, "shared": True, "dataset": {"refused_texts"}}
    loop = CoEvolution().model_dump(mode="json", exclude=newer)
    for table in ("dataset", "guard"):
        stored[table] = {**loop[table], **stored[table]}
    return {**loop, **stored}


@contextmanager
def database_of_version(url: str, revision: str) -> Iterator[Connection]:
    """A new database with the tables of an earlier version, in a transaction."""
    engine = create_engine(url)
    with engine.begin() as connection:
        alembic = alembic_config()
        alembic.attributes["connection"] = connection
        command.upgrade(alembic, revision)
        yield connection
    engine.dispose()


def insert(connection: Connection, table: str, **values: Any) -> None:
    reflected = Table(table, MetaData(), autoload_with=connection)
    connection.execute(reflected.insert().values(**values))


def insert_run(connection: Connection, config: dict[str, Any]) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    values = {"preset": None, "seed": 7, "status": "done", "config": config, "created_at": now, "updated_at": now}
    insert(connection, "runs", name="old", **values)
