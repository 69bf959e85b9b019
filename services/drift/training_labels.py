"""Accuracy of the labels that a method makes while it trains: for each step, and for the training of an iteration.

SRT, TTRL, EVOL-RL and SCRL make such labels anew at every step and do not store them, so no audit sees them. The
trainer compares them with the truth where it is known: with the answers that came with the prompts, or with those of
the exact oracle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy.orm import Session

from core.figures import LABELLED_SHARE, NEGATIVE_LABEL_ACCURACY, SOLVER_METRICS, TRAINING_LABELS
from core.settings.config import CoEvolution, RunConfig
from core.statistics.estimates import Estimate, Interval, wilson_at
from core.types import checkpoint_id
from storage import queries
from storage.rows import SeriesPoint, StepLabelFigures

# Series -> the trainer's metrics (`trainers.rewards`): a share of each step, and the number of different questions that
# it rests on.
_METRICS = {
    TRAINING_LABELS: (SOLVER_METRICS[TRAINING_LABELS], "labels_checked"),
    LABELLED_SHARE: (SOLVER_METRICS[LABELLED_SHARE], "truths_known"),
    NEGATIVE_LABEL_ACCURACY: (SOLVER_METRICS[NEGATIVE_LABEL_ACCURACY], "negatives_checked"),
}


def labels_by_step(session: Session, run: str) -> list[StepLabelFigures]:
    """The figures of each step whose labels could be checked, in order."""
    oracle = _oracle(queries.runs.config_of_run(session, run))
    if oracle is None:
        return []
    return [
        StepLabelFigures(t, step, oracle, *(_pooled([metrics], *names) for names in _METRICS.values()))
        for (t, step), metrics in _steps(session, run).items()
        if "truths_known" in metrics
    ]


def training_label_points(session: Session, run: str, iteration: int, config: RunConfig) -> Iterator[SeriesPoint]:
    """The figures over all steps of an iteration's training.

    Labels of one question at several steps are not independent. So n is at most the number of questions trained on,
    times the share of a step's questions that its figure rests on (the mean over the steps), rounded up.
    """
    oracle = _oracle(config)
    if oracle is None:
        return
    questions = queries.traces.count_learned_from(session, checkpoint_id(run, "solver", iteration))
    train_steps = queries.figures.train_metrics_of(
        session, run, iteration=iteration, role="solver", name="majority_share"
    )
    questions_in_steps = len(train_steps) * min(questions, config.solver.training.prompts_per_step)
    steps = [*_steps(session, run, iteration).values()]
    for name, metrics in _METRICS.items():
        checked = sum(step.get(metrics[1], 0.0) for step in steps)
        figure = _pooled(
            steps, *metrics, max_n=math.ceil(questions * checked / questions_in_steps) if questions_in_steps else 0
        )
        if figure is not None:
            yield SeriesPoint.of(figure, iteration, name, oracle=oracle)


def _oracle(config: RunConfig) -> str | None:
    """The oracle that knows the truth: `given` or `exact`. None if the method makes no labels while it trains."""
    if config.solver.reward.labels != "online":
        return None
    return "exact" if isinstance(config, CoEvolution) else "given"


def _steps(session: Session, run: str, iteration: int | None = None) -> dict[tuple[int, int], dict[str, float]]:
    steps: dict[tuple[int, int], dict[str, float]] = {}
    for name in (name for names in _METRICS.values() for name in names):
        for metric in queries.figures.train_metrics_of(session, run, iteration=iteration, role="solver", name=name):
            if metric.value is not None:
                steps.setdefault((metric.iteration, metric.step), {})[name] = metric.value
    return dict(sorted(steps.items()))


def _pooled(steps: Sequence[Mapping[str, float]], share: str, n: str, max_n: int | None = None) -> Estimate | None:
    """The mean share of several steps, weighted by their n, with Wilson's interval. Its n is at most `max_n`."""
    total = sum(step.get(n, 0.0) for step in steps)
    if total == 0:
        return None
    value = sum(step[share] * step[n] for step in steps if step.get(n)) / total
    count = round(total) if max_n is None else min(round(total), max_n)
    interval: Interval = "count" if count == round(total) else "share"
    return Estimate(value, *wilson_at(value, count, count), count, interval) if count else None
