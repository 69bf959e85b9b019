"""Alembic runs this file, in the connection and transaction of its caller (`storage.schema.migrate`)."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context
from sqlalchemy.types import TypeDecorator

from storage.models import Base


def _stored_type(kind: str, item: Any, _context: Any) -> str | Literal[False]:
    """Render a custom column type as the SQL type that it stores, such as `AnyText` as `sa.Text()`."""
    return f"sa.{item.impl!r}" if kind == "type" and isinstance(item, TypeDecorator) else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # on SQLite, a table is altered by rebuilding it
    transactional_ddl=True,
    render_item=_stored_type,
)
with context.begin_transaction():
    context.run_migrations()
