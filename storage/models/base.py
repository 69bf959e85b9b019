"""What all tables have in common."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Double, ForeignKey, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from storage.models.columns import AnyText, UtcDateTime

# The table is one B-tree instead of two. This suits narrow rows that are only looked up by their key.
NARROW = {"sqlite_with_rowid": False}


def run_key() -> Mapped[str]:
    """The column `run` in the primary key of a table whose rows are deleted with the run."""
    return mapped_column(ForeignKey("runs.name", ondelete="CASCADE"), primary_key=True)


def question_key() -> Mapped[str]:
    """The column `question_id` in the primary key of a table whose rows are deleted with the question."""
    return mapped_column(ForeignKey("questions.id", ondelete="CASCADE"), primary_key=True)


class Base(DeclarativeBase):
    # Constraints have names, so that a later migration can drop them.
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy expects a plain attribute
        str: AnyText,
        float: Double,
        datetime: UtcDateTime,
        dict[str, Any]: JSON,
        dict[str, str]: JSON,
        list[list[Any]]: JSON,
        list[int]: JSON,
    }
