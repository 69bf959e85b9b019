"""Figures of runs after their last iteration and after their best one, and how far they are from a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from core.figures import ACCURACY, HELD_OUT, TEST_TIME
from core.statistics.estimates import difference, paired_share_difference
from core.statistics.standing import best_iteration, standing_iterations
from services.views.series import Curve, ValueAt, point_of, series
from storage import queries


@dataclass(frozen=True, slots=True)
class LatestFigure:
    """A figure after its last iteration and after the run's best iteration; `x` is the iteration.

    `difference` is that of `last` to the baseline's `last`, None for the baseline itself and where one of them lacks
    the figure. That of the accuracy on a benchmark is paired on the questions that both have answered, n of them; that
    of any other figure takes the two as independent. Both are of these two trainings, and say nothing about another.
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
        of_solvers = series(session, run, HELD_OUT) or series(session, run, TEST_TIME)
        accuracy = {t: figure.value for t, figure in of_solvers.items()}
        iteration_of = {row.id: row.iteration for row in queries.checkpoints.checkpoints_of(session, run)}
        solvers = {t: checkpoints.get("solver") for t, checkpoints in queries.ledger.rolled_back(session, run)}
        back_to = {t: iteration_of[solver] for t, solver in solvers.items() if solver in iteration_of}
        best = best_iteration(accuracy, standing_iterations(max([0, *accuracy, *back_to]), back_to))
        others = {} if run == baseline else compared
        of_run = [
            LatestFigure(
                name,
                point_of(max(curve), curve[max(curve)]),
                point_of(best, curve[best]) if best is not None and best in curve else None,
                _difference(session, name, (run, curve), (baseline, others[name]))
                if baseline is not None and others.get(name)
                else None,
            )
            for name, curve in by_name.items()
            if curve
        ]
        figures.append(LatestFigures(run, best, of_run))
    return figures


def _difference(session: Session, name: str, now: tuple[str, Curve], baseline: tuple[str, Curve]) -> ValueAt:
    """How much higher the last figure of a run is than that of the baseline."""
    (run, curve), (other, compared) = now, baseline
    last, last_of_other = max(curve), max(compared)
    if name in ACCURACY:
        new, old = _results(session, run, last), _results(session, other, last_of_other)
        shared = sorted(new.keys() & old.keys())
        paired = paired_share_difference([old[item] for item in shared], [new[item] for item in shared])
        if paired is not None:
            return point_of(last, paired)
    return point_of(last, difference(curve[last], compared[last_of_other]))


def _results(session: Session, run: str, iteration: int) -> dict[str, float]:
    """Question -> the share of right samples of an iteration's Solver on the run's benchmark."""
    config = queries.runs.config_of_run(session, run)
    benchmark = config.evaluation.benchmark
    return {
        f"{benchmark}\x1f{result.item_id}": result.correct / result.samples
        for solver in queries.checkpoints.solvers_of(session, run)
        if solver.iteration == iteration
        for result in queries.evaluations.evaluations_of(session, solver.id, benchmark)
    }
