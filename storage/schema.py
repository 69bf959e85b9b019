"""Checks which version of the tables a database has, and upgrades them.

Alembic is configured here in code, so that it works from an installed package and in any working directory.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from storage import views
from storage.errors import StoreError

_MIGRATION_LOCK = 0x636F65766F  # any number that no other program uses for an advisory lock


def alembic_config() -> Config:
    config = Config()
    # A % in a config value begins an interpolation, so it is doubled.
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


@cache
def _versions() -> ScriptDirectory:
    """The migrations. They are cached, because reading them takes longer than all else that opening a store does."""
    return ScriptDirectory.from_config(alembic_config())


def _newest_version() -> str:
    """The version of the tables that this version of coevo expects, such as `0100`."""
    head = _versions().get_current_head()
    assert head is not None
    return head


def migrate(connection: Connection) -> None:
    """Upgrade the tables to the newest version, and create the views for SQL, in the transaction of `connection`.

    Two processes may call this at once: the second waits for the first, and then finds nothing to do. Raises
    `StoreError` when this version of coevo does not know the version of the tables.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
    if _known_revision(connection) == _newest_version() and views.complete(connection):
        return
    views.drop(connection)
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    views.create(connection)


def require_current(connection: Connection) -> None:
    """Raise `StoreError` unless the tables have the version that this version of coevo expects."""
    revision, head = _known_revision(connection), _newest_version()
    if revision is None:
        raise StoreError("it has no coevo tables; check the address, or let `coevo store migrate` create them")
    if revision != head:
        raise StoreError(f"its tables have version {revision}, expected {head}; `coevo store migrate` upgrades them")


def _known_revision(connection: Connection) -> str | None:
    """The version of the tables; None if there are none. Raises `StoreError` for a version that nothing upgrades."""
    revision = MigrationContext.configure(connection).get_current_revision()
    known = sorted(script.revision for script in _versions().walk_revisions())
    if revision is None or revision in known:
        return revision
    if revision.isdigit() and revision < known[0]:
        made_by = "they were made by a version of coevo that was never released, and cannot be upgraded"
    else:
        made_by = "a newer version of coevo made them, or the database belongs to another program"
    raise StoreError(
        f"its tables have version {revision}, expected {known[-1]}: {made_by}. Use the program that made them, or "
        "choose another database (COEVO_DATABASE) or another home (COEVO_HOME)"
    )
