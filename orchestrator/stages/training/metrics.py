"""The metrics of a training's steps: stored as soon as each step has ended, so that the curves of a training that runs
are seen, and once more as a whole when the training has ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from sqlalchemy.orm import Session

from core.types import Role, StageKey
from orchestrator.stages.context import Context
from orchestrator.trackers.tracked import tell_trackers
from storage import queries
from storage.session import DATABASE_ERRORS

Metrics = Mapping[str, float]


def labelled_metrics(steps: Iterable[Metrics], steps_before: int) -> list[dict[str, float]]:
    """The metrics of a training on labelled data under names of their own, with steps that continue the Solver's."""
    return [
        {f"labelled_{name}": value for name, value in metrics.items() if name != "step"}
        | {"step": steps_before + metrics["step"]}
        for metrics in steps
    ]


def replace_metrics(session: Session, key: StageKey, role: Role, steps: Iterable[Metrics], after: int = 0) -> None:
    """Store the metrics of all steps after step `after`, in place of what is stored of them.

    That may be of an attempt that was cut off. It may have done more steps, and other values are possible on a GPU.
    """
    run, iteration = key.run, key.iteration
    queries.figures.remove_train_metrics(session, run=run, iteration=iteration, role=role, after=after)
    for metrics in steps:
        step = int(metrics["step"])
        queries.figures.add_train_metrics(session, run=run, iteration=iteration, role=role, step=step, metrics=metrics)


def store_step(context: Context, role: Role, metrics: Metrics) -> None:
    """Store the metrics of the step that has just ended. If the database is busy, they are stored at the end."""
    with suppress(*DATABASE_ERRORS), context.write() as session:
        replace_metrics(session, context.key, role, [metrics], after=int(metrics["step"]) - 1)
    tell_trackers(context.run.name, context.iteration)
