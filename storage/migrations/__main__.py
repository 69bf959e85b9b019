"""`python -m storage.migrations NUMBER "what changes"`: draft the migration to what `storage.models` defines."""

from __future__ import annotations

import sys
import tempfile

from alembic import command
from sqlalchemy import create_engine

from storage.schema import alembic_config, migrate


def draft(number: str, message: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{folder}/coevo.db")
        with engine.begin() as connection:
            migrate(connection)
            config = alembic_config()
            config.attributes["connection"] = connection
            command.revision(config, message, autogenerate=True, rev_id=number)
        engine.dispose()


if __name__ == "__main__":
    draft(*sys.argv[1:3])
