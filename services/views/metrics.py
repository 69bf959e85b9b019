"""The metrics of a run: each value of a training's step, of a series and of an evaluation, under the name that trackers
and exports have it by."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Literal, NamedTuple

from sqlalchemy.orm import Session

from core.types import CheckpointRole, Role
from storage import queries
from storage.session import Store

Kind = Literal["training", "series", "evaluation"]


class Metric(NamedTuple):
    """One value. `name` and `x` are its key.

    Names are `training/ROLE/METRIC`, a figure of `core.figures` with what it is over and its oracle, such as
    `label_accuracy/kept/exact`, and `evaluation/BENCHMARK/FIGURE`. `/estimate` ends the name of what is not measured.
    """

    kind: Kind
    name: str
    role: CheckpointRole | None  # of a training, or of the checkpoint that was evaluated
    iteration: int
    step: int | None  # of the iteration's training, from 1
    x: int  # where it is drawn: the step over all iterations of the role, or the iteration
    value: float | None  # None: it is not finite
    lower: float | None = None  # 95% interval
    upper: float | None = None
    n: int | None = None  # `core.figures` says what it counts; of an evaluation questions


def metrics_of(store: Store, run: str, iterations: Collection[int] | None = None) -> Iterator[Metric]:
    """All series and evaluations of a run, and the metrics of its trainings, only of `iterations` if they are given.

    A training is read in a transaction of its own: on SQLite, writers wait for a long one.
    """
    with store.read() as session:
        figures = [*_series(session, run), *_evaluations(session, run)]
        last_steps = queries.figures.last_steps(session, run)
    yield from figures
    for iteration in dict.fromkeys(iteration for _, iteration in last_steps):
        if iterations is None or iteration in iterations:
            with store.read() as session:
                trained = [*_training(session, run, iteration, last_steps)]
            yield from trained


def _training(
    session: Session, run: str, iteration: int, last_steps: Mapping[tuple[Role, int], int]
) -> Iterator[Metric]:
    before = {role: 0 for role, _ in last_steps}
    for (role, earlier), last in last_steps.items():
        before[role] += last if earlier < iteration else 0
    for row in queries.figures.train_metrics_of(session, run, iteration=iteration):
        if row.name != "step":
            name, value = f"training/{row.role}/{row.name}", row.value
            value = value if value is not None and math.isfinite(value) else None
            yield Metric("training", name, row.role, iteration, row.step, before.get(row.role, 0) + row.step, value)


def _series(session: Session, run: str) -> Iterator[Metric]:
    for point in queries.series.series_of(session, run):
        parts = (point.name, point.over, point.oracle, "estimate" if point.estimated else "")
        name, t = "/".join(filter(None, parts)), point.iteration
        yield Metric("series", name, None, t, None, t, point.value, point.lo, point.hi, point.n)


def _evaluations(session: Session, run: str) -> Iterator[Metric]:
    checkpoints = {row.id: row for row in queries.checkpoints.checkpoints_of(session, run)}
    for row in queries.evaluations.evaluation_sums(session, run):
        if (checkpoint := checkpoints.get(row.checkpoint)) is None:
            continue
        role, t = checkpoint.role, checkpoint.iteration
        benchmark = re.sub(r"[^\w.-]+", "_", row.benchmark).strip("_")  # it may be the path of a file
        for figure, estimate in (("pass_at_1", row.pass_at_1), ("greedy", row.greedy), ("majority", row.majority)):
            if estimate is not None:
                name = f"evaluation/{benchmark}/{figure}" + ("/labelled" if role == "labelled" else "")
                value, lower, upper, n = estimate.value, estimate.lo, estimate.hi, estimate.n
                yield Metric("evaluation", name, role, t, None, t, value, lower, upper, n)
