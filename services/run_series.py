"""The series and training metrics of runs, grouped by arm, over iterations or over the Solver's training steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from sqlalchemy.orm import Session

from core.statistics.estimates import Estimate
from core.statistics.seeds import over_seeds
from services.api.figure_metrics import is_share
from services.drift.series import STEP_METRICS
from storage import queries
from storage.errors import StoreError

Curve = dict[int, Estimate]  # iteration or step -> figure
# Series over several slices of the questions -> the slice that is compared; that of any other is all questions.
SLICES = {"label_accuracy": "kept"}


def curves_of(session: Session, arms: Mapping[str, Sequence[str]], name: str, by_step: bool) -> dict[str, Curve]:
    """Arm -> a figure by iteration or by step; arms without it are left out.

    A single run has its own intervals; the mean of several has its interval over seeds. By step, the steps of all
    iterations are counted on. A figure that is stored for each iteration is at the last step of the iteration. A name
    that is no series is looked for among the Solver's training metrics. Raises `StoreError` if no run has the figure.
    """
    curve = _by_step if by_step else series
    curves = {arm: _mean([curve(session, run, name) for run in runs], is_share(name)) for arm, runs in arms.items()}
    if not any(curves.values()):
        known = sorted({known for runs in arms.values() for run in runs for known in _names(session, run, by_step)})
        raise StoreError(f"series {name}: expected one of {', '.join(known) or 'none, because there is none yet'}")
    return {arm: curve for arm, curve in curves.items() if curve}


def series(session: Session, run: str, name: str) -> Curve:
    """A series by iteration where it was measured; of several oracles, that of the first by name. A figure without an
    interval has its value as both ends."""
    points = [point for point in queries.series.series_of(session, run, name) if not point.estimated]
    over = SLICES.get(name, "all") if any(point.over for point in points) else ""
    points = [point for point in points if point.over == over]
    oracle = min((point.oracle for point in points), default="")
    return {point.iteration: point.estimate or _exact(point.value) for point in points if point.oracle == oracle}


def steps_until(session: Session, run: str) -> dict[int, int]:
    """Iteration -> the Solver's training steps up to its end; 0 for the base model. The steps of a branch on labelled
    data, which follow those of the iteration's Solver, are not counted."""
    ends = {one.iteration: one.step for one in queries.checkpoints.solvers_of(session, run)}
    steps = {
        (one.iteration, one.step)
        for one in queries.figures.train_metrics_of(session, run, role="solver")
        if one.step <= ends.get(one.iteration, one.step)
    }
    last = max((iteration for iteration, _ in steps), default=0)
    return {t: sum(iteration <= t for iteration, _ in steps) for t in range(last + 1)}


def _by_step(session: Session, run: str, name: str) -> Curve:
    until = steps_until(session, run)
    stored = {} if name in STEP_METRICS else series(session, run, name)
    if stored:
        return {until[t]: figure for t, figure in stored.items() if t in until}
    metrics = queries.figures.train_metrics_of(session, run, role="solver", name=STEP_METRICS.get(name, name))
    return {
        until.get(metric.iteration - 1, 0) + metric.step: _exact(metric.value)
        for metric in metrics
        if metric.value is not None and math.isfinite(metric.value)
    }


def _mean(curves: Sequence[Curve], of_share: bool) -> Curve:
    if len(curves) == 1:
        return curves[0]
    means = Curve()
    for x in sorted(set.intersection(*(set(curve) for curve in curves))):
        values = [curve[x].value for curve in curves]
        means[x] = over_seeds(values, of_share) or _exact(fmean(values))
    return means


def _names(session: Session, run: str, by_step: bool) -> set[str]:
    names = {point.name for point in queries.series.series_of(session, run)}
    metrics = queries.figures.train_metrics_of(session, run, role="solver") if by_step else []
    return names | {metric.name for metric in metrics}


def _exact(value: float) -> Estimate:
    return Estimate(value, value, value, 1)
