"""Which rows are deleted with a run, and which rows of others keep a run from being deleted."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Select, Table, exists, func, or_, select
from sqlalchemy.orm import Session

from core.types import checkpoint_id
from storage.models import Base, Checkpoints, Evaluations, InheritedIterations, Questions, Rollouts, Stages
from storage.queries.tables import find_rows
from storage.rows import EvaluationRow


def rows_of_run(session: Session, run: str) -> dict[str, int]:
    """Table -> how many of its rows are deleted with the run; tables without such rows are left out."""
    conditions = {table: owned(table, run) for table in Base.metadata.sorted_tables}
    counts = {
        table.name: session.scalar(select(func.count()).select_from(table).where(condition)) or 0
        for table, condition in conditions.items()
        if condition is not None
    }
    return {name: count for name, count in counts.items() if count}


def owned(table: Table, run: str) -> ColumnElement[bool] | None:
    """The condition for a table's rows that are deleted with a run, as its foreign keys say; None if no rows are."""
    if table.name == "runs":
        return table.c.name == run
    conditions = [table.c.run == run] if "run" in table.c else []
    if conditions and not table.c.run.nullable:
        return conditions[0]
    for key in table.foreign_keys:
        parent = key.column.table
        if key.ondelete == "CASCADE" and parent.name != "runs" and (condition := owned(parent, run)) is not None:
            conditions.append(key.parent.in_(select(key.column).where(condition)))
    return or_(*conditions) if conditions else None


@dataclass(frozen=True, slots=True)
class MissingReference:
    """A row of a run that refers to a row that is not there: `value` of its `column` is not a key of `table`."""

    row: str
    column: str
    value: str
    table: str


def references(session: Session, run: str) -> tuple[int, list[MissingReference]]:
    """How many references the run's rows have to questions and checkpoints, and those to rows that are not there.

    The database refuses to remove a row that others refer to, so there are none unless its files were damaged, or it
    was restored or changed by hand. A row whose question is missing belongs to the run that its keys name.
    """
    count, missing = 0, list[MissingReference]()
    for table in Base.metadata.sorted_tables:
        for key in sorted(table.foreign_keys, key=lambda key: key.parent.name):
            name, key_column = key.column.table.name, key.column.name
            if name not in ("questions", "checkpoints"):
                continue
            refers = [
                table.c.run == run if "run" in table.c else table.c.question_id.startswith(f"{run}/", autoescape=True),
                key.parent.is_not(None),
            ]
            count += session.scalar(select(func.count()).select_from(table).where(*refers)) or 0
            parent = key.column.table.alias()  # checkpoints refer to checkpoints
            to_nothing = ~exists().where(parent.c[key_column] == key.parent)
            rows = session.execute(select(*table.primary_key, key.parent).where(*refers, to_nothing))
            missing += [
                MissingReference(f"{table.name} {' '.join(map(str, at))}", key.parent.name, value, name)
                for *at, value in rows
            ]
    return count, missing


def referring_runs(session: Session, run: str) -> list[str]:
    """The other runs that have rows about this run's checkpoints or have iterations of it, in alphabetical order.

    Their checkpoints were trained from one, it wrote their questions or their votes, or they have evaluated it; or they
    are its forks.
    """
    mine, vote = _checkpoints_of(run), select(Questions.run).join(Rollouts, Rollouts.question_id == Questions.id)
    referring = [
        select(Checkpoints.run).where(Checkpoints.parent.in_(mine), Checkpoints.run != run),
        select(Questions.run).where(Questions.checkpoint.in_(mine), Questions.run != run),
        vote.where(Rollouts.checkpoint.in_(mine), Questions.run != run),
        select(Evaluations.run).where(Evaluations.checkpoint_id.in_(mine), Evaluations.run != run),
        select(InheritedIterations.run).where(InheritedIterations.made_by == run),
    ]
    return sorted({name for statement in referring for name in session.scalars(statement.distinct()) if name})


def evaluations_by_hand(session: Session, run: str) -> list[EvaluationRow]:
    """The evaluations of this run's checkpoints that no run made, but `coevo evaluate`; the oldest first."""
    of_run = (Evaluations.checkpoint_id.in_(_checkpoints_of(run)), Evaluations.run.is_(None))
    return find_rows(session, Evaluations, EvaluationRow, *of_run, order=[Evaluations.created_at, Evaluations.id])


def evaluation_ids(session: Session, run: str | None = None) -> set[str]:
    """The ids of all evaluations, or of those that are deleted with a run."""
    statement = select(Evaluations.id)
    if run is not None:
        statement = statement.where(or_(Evaluations.run == run, Evaluations.checkpoint_id.in_(_checkpoints_of(run))))
    return {*session.scalars(statement)}


def checkpoint_ids(session: Session) -> set[str]:
    """The ids of the checkpoints of all runs, without those whose files were removed."""
    return {*session.scalars(select(Checkpoints.id).where(Checkpoints.files_removed.is_(False)))}


def moments(session: Session) -> set[str]:
    """The ids of the checkpoints whose training has published the optimiser's moments."""
    published = select(Stages.run, Stages.iteration).where(
        Stages.stage == "train_solver", Stages.status == "done", Stages.result["optimiser"].as_string().is_not(None)
    )
    return {checkpoint_id(run, "solver", iteration) for run, iteration in session.execute(published)}


def done_stages(session: Session) -> set[tuple[str, int, str]]:
    """The stages of all runs that are done: run, iteration, stage."""
    done = select(Stages.run, Stages.iteration, Stages.stage).where(Stages.status == "done")
    return {(run, iteration, stage) for run, iteration, stage in session.execute(done)}


def _checkpoints_of(run: str) -> Select[str]:
    return select(Checkpoints.id).where(Checkpoints.run == run)
