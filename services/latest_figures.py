"""Figures of runs after their last iteration and after their best one, and how far they are from a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from core.statistics.changes import HELD_OUT, TEST_TIME
from core.statistics.estimates import difference
from core.statistics.standing import best_iteration, standing_iterations
from services.run_series import Curve, ValueAt, point_of, series
from storage import queries


@dataclass(frozen=True, slots=True)
class LatestFigure:
    """A figure after its last iteration and after the run's best iteration; `x` is the iteration.

    `difference` is that of `last` to the baseline's `last`, None for the baseline itself and where one of them lacks
    the figure. Its interval takes the two as independent. If they share questions, as held-out accuracy does, it is
    wider than that of the same questions in /comparison.
    """

    name: str
    last: ValueAt
    best: ValueAt | None
    difference: ValueAt | None


@dataclass(frozen=True, slots=True)
class LatestFigures:
    """The figures of one run.

    `best_iteration` has its highest held-out accuracy, or test-time accuracy, among the iterations that the run's
    present Solver comes from, as in the report (`core.statistics.standing`).
    """

    run: str
    best_iteration: int | None
    figures: list[LatestFigure]


def latest_figures(
    session: Session, runs: Sequence[str], names: Sequence[str], baseline: str | None, oracle: str | None
) -> list[LatestFigures]:
    """The figures `names` of each run; those that a run does not have are left out.

    A figure by an oracle is that of `oracle`, or of the first one by name if it is None.
    """
    curves = {run: {name: series(session, run, name, oracle) for name in names} for run in runs}
    compared = {} if baseline is None else {name: series(session, baseline, name, oracle) for name in names}
    figures = []
    for run, by_name in curves.items():
        best = _best_iteration(session, run)
        others = {} if run == baseline else compared
        of_run = [_figure(name, curve, best, others.get(name)) for name, curve in by_name.items() if curve]
        figures.append(LatestFigures(run, best, of_run))
    return figures


def _best_iteration(session: Session, run: str) -> int | None:
    curve = series(session, run, HELD_OUT) or series(session, run, TEST_TIME)
    iteration_of = {row.id: row.iteration for row in queries.checkpoints.checkpoints_of(session, run)}
    solvers = {t: checkpoints.get("solver") for t, checkpoints in queries.ledger.rolled_back(session, run)}
    back_to = {t: iteration_of[solver] for t, solver in solvers.items() if solver in iteration_of}
    accuracy = {t: figure.value for t, figure in curve.items()}
    return best_iteration(accuracy, standing_iterations(max([0, *accuracy, *back_to]), back_to))


def _figure(name: str, curve: Curve, best: int | None, compared: Curve | None) -> LatestFigure:
    last = max(curve)
    change = point_of(last, difference(curve[last], compared[max(compared)])) if compared else None
    at_best = point_of(best, curve[best]) if best is not None and best in curve else None
    return LatestFigure(name, point_of(last, curve[last]), at_best, change)
