"""Figures: filter statistics, training metrics, evaluations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Float, Integer, cast, func, select
from sqlalchemy.orm import Session

from core.questions.filtering import FilterStats
from core.statistics.estimates import Sums
from core.types import Evaluated, Role
from storage.models import Checkpoints, Evaluations, FilterStatistics, TrainMetrics
from storage.queries.tables import columns, insert_new
from storage.rows import TrainMetric


def add_filter_stats(session: Session, *, run: str, iteration: int, stats: FilterStats) -> None:
    insert_new(session, FilterStatistics, [{"run": run, "iteration": iteration, **asdict(stats)}])


def filter_stats_of(session: Session, run: str) -> dict[int, FilterStats]:
    """Iteration -> filter statistics, in order of the iterations."""
    statement = select(FilterStatistics.iteration, *columns(FilterStatistics, FilterStats))
    ordered = statement.where(FilterStatistics.run == run).order_by(FilterStatistics.iteration)
    return {iteration: FilterStats(*stats) for iteration, *stats in session.execute(ordered)}


def add_train_metrics(
    session: Session, *, run: str, iteration: int, role: Role, step: int, metrics: Mapping[str, float]
) -> None:
    """Store the figures of one optimiser step. NaN is stored as NULL, because SQLite has no NaN."""
    key = {"run": run, "iteration": iteration, "role": role, "step": step}
    figures = {name: None if math.isnan(value) else float(value) for name, value in metrics.items()}
    insert_new(session, TrainMetrics, [{**key, "name": name, "value": value} for name, value in figures.items()])


def train_metrics_of(
    session: Session, run: str, *, iteration: int | None = None, role: Role | None = None, name: str | None = None
) -> list[TrainMetric]:
    """A run's metrics by iteration, role, step and name; only those of `iteration`, `role` or `name` if it is given."""
    statement = select(*columns(TrainMetrics, TrainMetric)).where(TrainMetrics.run == run)
    for column, value in ((TrainMetrics.iteration, iteration), (TrainMetrics.role, role), (TrainMetrics.name, name)):
        if value is not None:
            statement = statement.where(column == value)
    key = (TrainMetrics.iteration, TrainMetrics.role, TrainMetrics.step, TrainMetrics.name)
    return [TrainMetric(*row) for row in session.execute(statement.order_by(*key))]


def add_evaluations(session: Session, *, checkpoint: str, benchmark: str, items: Iterable[Evaluated]) -> None:
    key = {"checkpoint_id": checkpoint, "benchmark": benchmark}
    insert_new(session, Evaluations, ({**key, **asdict(item)} for item in items))


def evaluated(session: Session, run: str) -> list[tuple[str, str]]:
    """The (checkpoint, benchmark) pairs for which a run has evaluations, by iteration."""
    key = (Checkpoints.iteration, Evaluations.checkpoint_id, Evaluations.benchmark)
    statement = select(*key).join(Checkpoints).where(Checkpoints.run == run).distinct().order_by(*key)
    return [(checkpoint, benchmark) for _, checkpoint, benchmark in session.execute(statement)]


@dataclass(frozen=True, slots=True)
class EvaluationSums:
    """The results of a checkpoint on a benchmark, summed over its items.

    `shares` sums each item's share of right samples. `greedy` and `majority` count the items that were right.
    """

    checkpoint: str
    benchmark: str
    samples: int  # per item
    shares: Sums
    greedy: int
    majority: int


def evaluation_sums(session: Session, run: str) -> list[EvaluationSums]:
    """The results of every checkpoint of a run on every benchmark, by iteration."""
    key = (Checkpoints.iteration, Evaluations.checkpoint_id, Evaluations.benchmark)
    right = cast(Evaluations.correct, Float) / Evaluations.samples
    figures: list[Any] = [func.max(Evaluations.samples), func.count(), func.sum(right), func.sum(right * right)]
    figures += [
        func.sum(cast(column, Integer)) for column in (Evaluations.greedy_correct, Evaluations.majority_correct)
    ]
    statement = select(*key, *figures).join(Checkpoints).where(Checkpoints.run == run).group_by(*key).order_by(*key)
    return [
        EvaluationSums(checkpoint, benchmark, samples, Sums(n, total, squares), greedy, majority)
        for _, checkpoint, benchmark, samples, n, total, squares, greedy, majority in session.execute(statement)
    ]


def evaluations_of(session: Session, checkpoint: str, benchmark: str) -> list[Evaluated]:
    """The results of a checkpoint on a benchmark, by item id."""
    key = [Evaluations.checkpoint_id == checkpoint, Evaluations.benchmark == benchmark]
    statement = select(*columns(Evaluations, Evaluated)).where(*key).order_by(Evaluations.item_id)
    return [Evaluated(*row) for row in session.execute(statement)]
