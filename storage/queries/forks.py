"""Forks: runs whose first iterations are those of other runs, to whose rows and checkpoints they refer.

A row's key has the run that made it. So whoever asks for an iteration of a run asks for that of the run that made it
(`made_by`), and whoever asks for all of a run's rows takes those of its inherited iterations too (`of_run`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from storage.models import Base, InheritedIterations
from storage.queries.tables import insert_new

_Row = InheritedIterations


def inherited(session: Session, run: str) -> dict[int, str]:
    """Iteration -> the run that made it, of the iterations that a run has from others. Empty if it is no fork; else
    they are 0, 1, and so on, up to the one after which it begins."""
    return inherited_by(session, [run]).get(run, {})


def inherited_by(session: Session, runs: Sequence[str]) -> dict[str, dict[int, str]]:
    """Run -> what it has from others, as `inherited`; runs that are no forks are left out."""
    rows = select(_Row.run, _Row.iteration, _Row.made_by).where(_Row.run.in_(runs)).order_by(_Row.iteration)
    of_runs: dict[str, dict[int, str]] = {}
    for run, iteration, maker in session.execute(rows):
        of_runs.setdefault(run, {})[iteration] = maker
    return of_runs


def by_maker(session: Session, run: str) -> dict[str, list[int]]:
    """Another run -> the iterations that a run has from it, in order; empty if it is no fork."""
    parts: dict[str, list[int]] = {}
    for iteration, maker in inherited(session, run).items():
        parts.setdefault(maker, []).append(iteration)
    return parts


def made_by(session: Session, run: str, iteration: int) -> str:
    """The run that makes, or has made, an iteration of a run: the run itself, unless it has the iteration from
    another."""
    return inherited(session, run).get(iteration, run)


def makers(session: Session, run: str, last: int) -> dict[int, str]:
    """Iteration -> the run that made it, of a run's iterations 0 to `last`: what its fork after `last` inherits."""
    from_others = inherited(session, run)
    return {iteration: from_others.get(iteration, run) for iteration in range(last + 1)}


def of_run(session: Session, model: type[Base], run: str, iteration: Any = None) -> ColumnElement[bool]:
    """The condition for a table's rows of all iterations of a run, those that it has inherited among them.

    `iteration` is the column with the iteration, if it is of another table that is joined.
    """
    columns: Any = model
    iteration = columns.iteration if iteration is None else iteration
    conditions = [columns.run == run]
    for maker, iterations in by_maker(session, run).items():
        conditions.append(and_(columns.run == maker, iteration.between(iterations[0], iterations[-1])))
    return or_(*conditions)


def same_iteration(model: type[Base]) -> ColumnElement[bool]:
    """The condition that joins a table's rows to the `inherited_iterations` that they are of: each fork then has them
    under its own name."""
    columns: Any = model
    return and_(columns.run == _Row.made_by, columns.iteration == _Row.iteration)


def begins_at(session: Session, run: str) -> int:
    """The first iteration that a run makes itself; 0 if it is no fork."""
    return len(inherited(session, run))


def forks_of(session: Session, run: str) -> dict[int, list[str]]:
    """Iteration that this run has made -> the forks that have it from this run, in alphabetical order. As long as one
    exists, the iteration's rows and the files of its checkpoints are kept."""
    rows = select(_Row.iteration, _Row.run).where(_Row.made_by == run)
    forks: dict[int, list[str]] = {}
    for iteration, fork in session.execute(rows.order_by(_Row.iteration, _Row.run)):
        forks.setdefault(iteration, []).append(fork)
    return forks


def add(session: Session, run: str, of: Mapping[int, str]) -> None:
    """Have a run inherit these iterations, which are those of `makers`."""
    rows = ({"run": run, "iteration": iteration, "made_by": maker} for iteration, maker in of.items())
    insert_new(session, InheritedIterations, rows)
