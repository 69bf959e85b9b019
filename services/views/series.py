"""The series and training metrics of runs, grouped by arm, over iterations or over the Solver's training steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from sqlalchemy.orm import Session

from core.figures import ASKED, LABELS, OVERCONFIDENCE, SOLVER_METRICS, figure_of, is_share
from core.statistics.estimates import Estimate
from core.statistics.seeds import over_seeds
from services.drift.series import OF_LABELS
from storage import queries
from storage.errors import StoreError

Curve = dict[int, Estimate]  # iteration or step -> figure
# Series over several slices of the questions -> the slice that is compared; that of any other is all questions.
SLICES = {LABELS: "kept", OVERCONFIDENCE: "kept", ASKED: "kept"}


def curves_of(
    session: Session, arms: Mapping[str, Sequence[str]], name: str, by_step: bool, oracle: str | None = None
) -> dict[str, Curve]:
    """Arm -> a figure by iteration or by step; arms without it are left out.

    A single run has its own intervals; the mean of several has its interval over seeds. By step, the steps of all
    iterations are counted on. A figure that is stored for each iteration is at the last step of the iteration. A name
    that is no series is looked for among the Solver's training metrics. `oracle` is as in `series`.

    Raises `StoreError` if no run has the figure.
    """
    curve = _by_step if by_step else series
    curves = {
        arm: _mean([curve(session, run, name, oracle) for run in runs], is_share(name)) for arm, runs in arms.items()
    }
    if not any(curves.values()):
        known = sorted({known for runs in arms.values() for run in runs for known in _names(session, run, by_step)})
        raise StoreError(f"series {name}: expected one of {', '.join(known) or 'none, because there is none yet'}")
    return {arm: curve for arm, curve in curves.items() if curve}


def series(session: Session, run: str, name: str, by_oracle: str | None = None) -> Curve:
    """A series by iteration where it was measured; of several oracles, that of the first by name.

    What oracles say of the pseudo-labels is only that of `by_oracle`, if it is given. A figure without an interval has
    its value as both ends.
    """
    points = [point for point in queries.series.series_of(session, run, name) if not point.estimated]
    over = SLICES.get(name, "all") if any(point.over for point in points) else ""
    points = [point for point in points if point.over == over]
    if by_oracle is not None and name in OF_LABELS:
        points = [point for point in points if point.oracle == by_oracle]
    oracle = min((point.oracle for point in points), default="")
    return {point.iteration: point.estimate or _exact(point.value) for point in points if point.oracle == oracle}


def steps_until(session: Session, run: str) -> dict[int, int]:
    """Iteration -> the Solver's training steps up to its end; 0 for the base model. The steps of a branch on labelled
    data, which follow those of the iteration's Solver, are not counted."""
    ends = {solver.iteration: solver.step for solver in queries.checkpoints.solvers_of(session, run)}
    steps = {
        (metric.iteration, metric.step)
        for metric in queries.figures.train_metrics_of(session, run, role="solver")
        if metric.step <= ends.get(metric.iteration, metric.step)
    }
    last = max((iteration for iteration, _ in steps), default=0)
    return {t: sum(iteration <= t for iteration, _ in steps) for t in range(last + 1)}


def _by_step(session: Session, run: str, name: str, oracle: str | None) -> Curve:
    until = steps_until(session, run)
    stored = {} if name in SOLVER_METRICS else series(session, run, name, oracle)
    if stored:
        return {until[t]: figure for t, figure in stored.items() if t in until}
    metrics = queries.figures.train_metrics_of(session, run, role="solver", name=SOLVER_METRICS.get(name, name))
    return {
        until.get(metric.iteration - 1, 0) + metric.step: _exact(metric.value)
        for metric in metrics
        if metric.value is not None and math.isfinite(metric.value)
    }


def _mean(curves: Sequence[Curve], of_share: bool) -> Curve:
    curves = [curve for curve in curves if curve]  # a run that has just begun has none
    if len(curves) < 2:
        return curves[0] if curves else {}
    means = Curve()
    for x in sorted(set.intersection(*(set(curve) for curve in curves))):
        values = [curve[x].value for curve in curves]
        means[x] = over_seeds(values, of_share) or _exact(fmean(values), len(values))
    return means


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A figure that runs can be compared by. `unit` is empty if it has none, and "ratio" for a share.

    A figure that is no series is a training metric, which only has values by step.
    """

    name: str
    text: str
    unit: str
    by_iteration: bool


@dataclass(frozen=True, slots=True)
class ValueAt:
    """`x` is an iteration or a step. `lo`, `hi` and `n` are None if the value has no interval."""

    x: int
    value: float
    lo: float | None
    hi: float | None
    n: int | None


@dataclass(frozen=True, slots=True)
class LabelledCurve:
    """A figure of one run, or its mean over several. With several, the interval is over these and n is their number."""

    label: str
    runs: list[str]
    points: list[ValueAt]


def figures_of(session: Session, runs: Sequence[str]) -> list[ComparedFigure]:
    """All figures that any of the runs has, first the series, in alphabetical order."""
    of_series = {name for run in runs for name in _names(session, run, False)}
    metrics = {name for run in runs for name in _names(session, run, True)} - of_series
    compared = []
    for name in (*sorted(of_series), *sorted(metrics)):
        figure = figure_of(name) if name in of_series else None
        text, unit = (figure.text, figure.unit) if figure else (f"{name}, as the trainer reports it", "")
        compared.append(ComparedFigure(name, text, unit, name in of_series))
    return compared


def labelled_curves(
    session: Session, arms: Mapping[str, Sequence[str]], name: str, by_step: bool, oracle: str | None
) -> list[LabelledCurve]:
    """`curves_of`, with the labels of the arms, their runs, and no intervals where a figure has none."""
    curves = curves_of(session, arms, name, by_step, oracle)
    return [
        LabelledCurve(arm, [*arms[arm]], [point_of(x, figure) for x, figure in curve.items()])
        for arm, curve in curves.items()
    ]


def point_of(x: int, figure: Estimate) -> ValueAt:
    """A figure after an iteration or step; its interval is left out if it has none."""
    if figure.lo == figure.hi:  # see `_exact`
        return ValueAt(x, figure.value, None, None, None)
    return ValueAt(x, figure.value, figure.lo, figure.hi, figure.n)


def _names(session: Session, run: str, by_step: bool) -> set[str]:
    names = {point.name for point in queries.series.series_of(session, run)}
    return names | (queries.figures.metric_names(session, run, role="solver") if by_step else set())


def _exact(value: float, n: int = 1) -> Estimate:
    return Estimate(value, value, value, n)
