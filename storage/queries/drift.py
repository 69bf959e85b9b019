"""How far the label accuracy of runs has moved since they were first audited, which shows the runs that drift now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Subquery, func, select, union_all
from sqlalchemy.orm import Session

from storage.models import InheritedIterations, Series
from storage.queries.forks import same_iteration


@dataclass(frozen=True, slots=True)
class LabelChange:
    """The last measured label accuracy of the kept questions, less the first one by the same oracle.

    `drifts`: the whole 95% interval of the last is below that of the first. Of several oracles, it is the one whose
    change is the worst.
    """

    oracle: str
    first_iteration: int
    last_iteration: int
    first: float
    last: float
    change: float  # in 0..1, as the accuracies
    drifts: bool


def label_changes(session: Session, runs: Sequence[str] | None = None) -> dict[str, LabelChange]:
    """Run -> its change, the worst first. All runs, or those named; runs with fewer than two audited iterations are
    left out."""
    table = changes(runs)
    rows: Iterable[Any] = session.execute(select(table).order_by(table.c.change, table.c.run))
    return {
        row.run: LabelChange(
            *(row.oracle, row.first_iteration, row.last_iteration, row.first, row.last, row.change, bool(row.drifts))
        )
        for row in rows
    }


def changes(runs: Sequence[str] | None = None) -> Subquery:
    """One row for each run that has been audited after two iterations, of all or of those named, with the columns of
    `LabelChange`. A fork's inherited iterations count."""
    fields = (Series.oracle, Series.iteration, Series.value, Series.lo, Series.hi)
    labels = [Series.name == "label_accuracy", Series.over == "kept", Series.estimated.is_(False)]

    def named(run: Any) -> list[ColumnElement[bool]]:
        return [*labels, *([] if runs is None else [run.in_(runs)])]

    own = select(Series.run, *fields).where(*named(Series.run))
    inherited = select(InheritedIterations.run, *fields).join(InheritedIterations, same_iteration(Series))
    points = union_all(own, inherited.where(*named(InheritedIterations.run))).subquery().c
    of_oracle = (points.run, points.oracle)
    measured = select(
        *points,
        func.row_number().over(partition_by=of_oracle, order_by=points.iteration).label("from_first"),
        func.row_number().over(partition_by=of_oracle, order_by=points.iteration.desc()).label("from_last"),
    ).cte("measured")
    first, last = measured.alias("first"), measured.alias("last")
    change = (last.c.value - first.c.value).label("change")
    pairs = (
        select(
            first.c.run,
            first.c.oracle,
            first.c.iteration.label("first_iteration"),
            last.c.iteration.label("last_iteration"),
            first.c.value.label("first"),
            last.c.value.label("last"),
            change,
            func.coalesce(last.c.hi < first.c.lo, False).label("drifts"),
            func.row_number().over(partition_by=first.c.run, order_by=(change, first.c.oracle)).label("rank"),
        )
        .join(last, (first.c.run == last.c.run) & (first.c.oracle == last.c.oracle))
        .where(first.c.from_first == 1, last.c.from_last == 1, first.c.iteration < last.c.iteration)
        .subquery()
    )
    return select(pairs).where(pairs.c.rank == 1).subquery("label_changes")
