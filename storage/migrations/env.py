"""Alembic runs this file; the connection, and its transaction, are the caller's (`storage.schema.migrate`)."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from sqlalchemy.types import TypeDecorator

from storage.models import Base


def _plain(kind: str, item: Any, _context: Any) -> str | Literal[False]:
    """A migration is about what the database has: it says `sa.Text()` where the models say `AnyText`."""
    return f"sa.{item.impl!r}" if kind == "type" and isinstance(item, TypeDecorator) else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite alters a table by building it anew
    transactional_ddl=True,
    render_item=_plain,
)
with context.begin_transaction():
    context.run_migrations()
