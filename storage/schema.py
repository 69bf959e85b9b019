"""Which version of the tables a database has, and bringing it up to date. Alembic's configuration is made here in code,
so that it works from an installed package, whatever the working directory."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from storage.errors import StoreError

_MIGRATION_LOCK = 0x636F65766F  # any number that nobody else's advisory lock has


def alembic_config() -> Config:
    config = Config()
    # A config value has % for interpolation.
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


@cache
def _versions() -> ScriptDirectory:
    """The migrations. Reading them takes longer than everything else that opening a store does."""
    return ScriptDirectory.from_config(alembic_config())


def migrate(connection: Connection) -> None:
    """Bring the database of `connection` to the newest version, in the transaction that the connection is in.

    Two processes may do it at once: the second waits and finds it done.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
    _known_revision(connection)
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def require_current(connection: Connection) -> None:
    """Raise `StoreError` unless the tables are those that this version of the code knows."""
    revision = _known_revision(connection)
    if revision is None:
        raise StoreError("it has no coevo tables; check the address, or let `coevo migrate` create them")
    head = _versions().get_current_head()
    if revision != head:
        raise StoreError(f"its tables are of version {revision}, expected {head}; `coevo migrate` brings it up to date")


def _known_revision(connection: Connection) -> str | None:
    revision = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in _versions().walk_revisions()}
    if revision is not None and revision not in known:
        raise StoreError(
            f"its tables are of version {revision}, which this coevo does not know:"
            " another version of coevo made it, or it is another program's database"
        )
    return revision
