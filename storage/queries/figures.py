"""Figures: filter statistics and training metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from core.questions.filtering import FilterStats
from core.types import Role
from storage.models import FilterStatistics, TrainMetrics
from storage.queries.forks import of_run
from storage.queries.tables import columns, find_rows, insert_new
from storage.rows import TrainMetric


def add_filter_stats(session: Session, *, run: str, iteration: int, stats: FilterStats) -> None:
    insert_new(session, FilterStatistics, [{"run": run, "iteration": iteration, **asdict(stats)}])


def filter_stats_of(session: Session, run: str) -> dict[int, FilterStats]:
    """Iteration -> filter statistics, in order of the iterations."""
    statement = select(FilterStatistics.iteration, *columns(FilterStatistics, FilterStats))
    ordered = statement.where(of_run(session, FilterStatistics, run)).order_by(FilterStatistics.iteration)
    return {iteration: FilterStats(*stats) for iteration, *stats in session.execute(ordered)}


def add_train_metrics(
    session: Session, *, run: str, iteration: int, role: Role, step: int, metrics: Mapping[str, float]
) -> None:
    """Store the figures of one optimiser step. NaN is stored as NULL, because SQLite has no NaN."""
    key = {"run": run, "iteration": iteration, "role": role, "step": step}
    figures = {name: None if math.isnan(value) else float(value) for name, value in metrics.items()}
    insert_new(session, TrainMetrics, [{**key, "name": name, "value": value} for name, value in figures.items()])


def remove_train_metrics(session: Session, *, run: str, iteration: int, role: Role, after: int) -> None:
    """Remove the figures of all optimiser steps after step `after`."""
    of_role = (TrainMetrics.run == run, TrainMetrics.iteration == iteration, TrainMetrics.role == role)
    session.execute(delete(TrainMetrics).where(*of_role, TrainMetrics.step > after))


def train_metrics_of(
    session: Session, run: str, *, iteration: int | None = None, role: Role | None = None, name: str | None = None
) -> list[TrainMetric]:
    """A run's metrics by iteration, role, step and name; only those of `iteration`, `role` or `name` if it is given."""
    given = ((TrainMetrics.iteration, iteration), (TrainMetrics.role, role), (TrainMetrics.name, name))
    named = [column == value for column, value in given if value is not None]
    key = [TrainMetrics.iteration, TrainMetrics.role, TrainMetrics.step, TrainMetrics.name]
    return find_rows(session, TrainMetrics, TrainMetric, of_run(session, TrainMetrics, run), *named, order=key)


def last_steps(session: Session, run: str) -> dict[tuple[Role, int], int]:
    """(role, iteration) -> the last step of the training that has metrics, in order of the iterations."""
    key = (TrainMetrics.role, TrainMetrics.iteration)
    statement = select(*key, func.max(TrainMetrics.step)).where(of_run(session, TrainMetrics, run)).group_by(*key)
    rows: Iterable[Any] = session.execute(statement.order_by(key[1], key[0]))
    return {(role, iteration): step for role, iteration, step in rows}


def metric_names(session: Session, run: str, *, role: Role) -> set[str]:
    """The names of all metrics that a run has for a role."""
    of_role = select(TrainMetrics.name).where(of_run(session, TrainMetrics, run), TrainMetrics.role == role)
    return {*session.scalars(of_role.distinct())}
