"""Which rows go into an archive with a run, and their insertion into another database."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, cast

from sqlalchemy import ColumnElement, Table, and_, case, select
from sqlalchemy.orm import Session

from storage.models import Base, BenchmarkItems, Checkpoints, Evaluations, Runs
from storage.queries.run_rows import owned
from storage.queries.tables import columns, insert_new, table_of
from storage.rows import EvaluationRow

# A lease belongs to a process, and a key to an installation.
_LEFT_OUT = {"run_leases", "api_keys"}
TABLES = [table for table in Base.metadata.sorted_tables if table.name not in _LEFT_OUT]  # those referred to come first
RUNS = table_of(Runs)
_MODELS = {cast(Table, mapper.local_table): mapper.class_ for mapper in Base.registry.mappers}
_OF_NO_RUN = and_(Evaluations.run.is_(None), Evaluations.checkpoint_id.is_(None))
_CHUNK = 1_000  # rows that are in memory at a time


def rows_of(session: Session, table: Table, run: str | None) -> Iterator[Mapping[str, Any]] | None:
    """A run's rows of a table, in order of their key; of a benchmark's questions, those that the run's evaluations
    asked. None as the run stands for the evaluations of models that are no run's.

    None if the table has no rows of runs, or none of such evaluations.
    """
    condition = _condition(table, run)
    if condition is None:
        return None
    statement = select(table).where(condition).order_by(*_order(table))
    return _streamed(session, statement)


def _streamed(session: Session, statement: Any) -> Iterator[Mapping[str, Any]]:
    with session.execute(statement, execution_options={"yield_per": _CHUNK}) as result:
        for row in result.mappings():
            yield dict(row)


def _condition(table: Table, run: str | None) -> ColumnElement[bool] | None:
    of_run = None if run is None else owned(table_of(Evaluations), run)
    chosen = _OF_NO_RUN if of_run is None else of_run
    if table is table_of(BenchmarkItems):
        asked = Evaluations.manifest["benchmark"]["sha256"].as_string()
        return table.c.sha256.in_(select(asked).where(chosen, asked.is_not(None)))
    if run is not None:
        return owned(table, run)
    if table is table_of(Evaluations):
        return chosen
    return table.c.evaluation_id.in_(select(Evaluations.id).where(chosen)) if "evaluation_id" in table.c else None


def _order(table: Table) -> list[Any]:
    """Checkpoints are in the order of their trainings, so that each comes after the one that it was trained from."""
    if table is not table_of(Checkpoints):
        return [*table.primary_key]
    return [table.c.iteration, case((table.c.role == "labelled", 1), else_=0), table.c.role, table.c.id]


def model_of(table: Table) -> type[Base]:
    """The inverse of `table_of`."""
    return _MODELS[table]


def add_rows(session: Session, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert rows. One whose key exists already stays as it is."""
    insert_new(session, model_of(table), rows)


def stored_evaluations(session: Session, ids: Collection[str]) -> list[str]:
    """Those of these evaluations that the store has, in alphabetical order."""
    return [*session.scalars(select(Evaluations.id).where(Evaluations.id.in_(ids)).order_by(Evaluations.id))]


def evaluations_of(session: Session, run: str | None) -> list[EvaluationRow]:
    """The evaluations that a run made, and those of its checkpoints that `coevo evaluate` made. None as the run stands
    for the evaluations of models that are no run's."""
    condition = _condition(table_of(Evaluations), run)
    assert condition is not None
    statement = select(*columns(Evaluations, EvaluationRow)).where(condition).order_by(Evaluations.id)
    return [EvaluationRow(*row) for row in session.execute(statement)]
