"""How much room the database takes."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import TextClause, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from storage.models import Base
from storage.queries.tables import is_postgresql

# A table's size includes its indexes. `aggregate` makes dbstat return one row for each table or index.
_SQLITE = text(
    "SELECT schema.tbl_name, sum(stat.pgsize) FROM dbstat AS stat JOIN sqlite_schema AS schema USING (name) "
    "WHERE stat.aggregate = TRUE GROUP BY schema.tbl_name"
)
_PAGES = text(
    "SELECT page_count * page_size, freelist_count * page_size "
    "FROM pragma_page_count, pragma_page_size, pragma_freelist_count"
)
_POSTGRESQL = text(
    "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r' AND pg_table_is_visible(oid)"
)


@dataclass(frozen=True, slots=True)
class DatabaseSize:
    """Bytes of the whole database, of its pages that hold nothing, and of each table with its indexes.

    `free` is room that new rows take first; the file shrinks only when somebody runs `VACUUM`. It is None with
    PostgreSQL, which does not tell. `tables` is None where SQLite was built without dbstat.
    """

    total: int
    free: int | None
    tables: dict[str, int] | None


def database_size(session: Session) -> DatabaseSize:
    """The size of coevo's tables, the largest first."""
    if is_postgresql(session):
        tables = _ours(session, _POSTGRESQL)
        return DatabaseSize(sum(tables.values()), None, tables)
    total, free = session.execute(_PAGES).one()
    try:
        return DatabaseSize(total, free, _ours(session, _SQLITE))
    except OperationalError:  # no such table: dbstat
        return DatabaseSize(total, free, None)


def _ours(session: Session, statement: TextClause) -> dict[str, int]:
    names = {table.name for table in Base.metadata.sorted_tables}
    sizes = {name: int(size) for name, size in session.execute(statement) if name in names}
    return dict(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))
