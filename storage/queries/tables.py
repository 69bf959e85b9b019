"""Converts between frozen dataclasses and tables: a dataclass's fields have the names of the table's columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeVar, cast

from sqlalchemy import ColumnElement, Table, func, inspect, literal, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from storage.errors import StoreError
from storage.models import Base

_CHUNK = 5_000  # rows per statement: bounds the memory of a bulk write

T = TypeVar("T")
Upsert = postgresql.Insert | sqlite.Insert


def table_of(model: type[Base]) -> Table:
    return cast(Table, model.__table__)


def columns(model: type[Base], dataclass: type[Any]) -> list[ColumnElement[Any]]:
    """The columns of the dataclass's fields, in their order, so that `dataclass(*row)` takes a row of them."""
    attributes = inspect(model).column_attrs
    return [cast(ColumnElement[Any], attributes[field.name].expression) for field in fields(dataclass)]


def find_rows(
    session: Session,
    model: type[Base],
    dataclass: type[T],
    *conditions: ColumnElement[bool],
    order: Sequence[Any] = (),
    limit: int | None = None,
) -> list[T]:
    """The rows of a table that fulfil all conditions, the first `limit` of them."""
    statement = select(*columns(model, dataclass)).where(*conditions).order_by(*order).limit(limit)
    return [dataclass(*row) for row in session.execute(statement)]


def find_row(session: Session, model: type[Base], dataclass: type[T], *conditions: ColumnElement[bool]) -> T | None:
    """The only row of a table that fulfils all conditions; None if there is none."""
    row = session.execute(select(*columns(model, dataclass)).where(*conditions)).one_or_none()
    return None if row is None else dataclass(*row)


def is_postgresql(session: Session) -> bool:
    return session.get_bind().dialect.name == "postgresql"


def insert_into(session: Session, model: type[Base]) -> Upsert:
    table = table_of(model)
    return postgresql.insert(table) if is_postgresql(session) else sqlite.insert(table)


def insert_new(session: Session, model: type[Base], rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert `rows`, which all have the same fields. A row whose primary key exists already stays as it is."""
    table, insert = table_of(model), insert_into(session, model)
    key = list(table.primary_key)
    remaining = iter(rows)
    while chunk := list(islice(remaining, _CHUNK)):
        if isinstance(insert, postgresql.Insert):
            # The rows come from one array per column. One statement per row would take twice the time.
            types = {name: postgresql.ARRAY(table.c[name].type, dimensions=1) for name in chunk[0]}
            arrays = (literal([row[name] for row in chunk], type_) for name, type_ in types.items())
            filled = insert.from_select([*types], select(*map(func.unnest, arrays)))
            session.execute(filled.on_conflict_do_nothing(index_elements=key))
        else:
            session.execute(insert.on_conflict_do_nothing(index_elements=key), chunk)


def insert_dataclasses(session: Session, model: type[Base], objects: Iterable[Any], dataclass: type[Any]) -> None:
    """`insert_new` for objects that have at least the fields of `dataclass`."""
    names = [field.name for field in fields(dataclass)]
    insert_new(session, model, ({name: getattr(row, name) for name in names} for row in objects))


def database_time(session: Session) -> datetime:
    """The time of the database server's clock, which all machines share. With SQLite there is only one machine."""
    if not is_postgresql(session):
        return datetime.now(UTC)
    now = session.scalar(select(func.clock_timestamp()))
    if not isinstance(now, datetime):
        raise StoreError(f"clock of the database: expected a timestamp, got {now!r}")
    return now
