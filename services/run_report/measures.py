"""The measures of a run: every share and mean with its 95% interval and the number of items that it is based on.

A gain is a paired difference over the same questions. If the guard, early stopping or a person rolled a run back, the
discarded iterations are measured like all others, but `stands` is false for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from core.figures import LABELLED_SHARE, NEGATIVE_LABEL_ACCURACY, TRAINING_LABELS
from core.settings.config import RunConfig
from core.statistics.accuracy import Accuracy, accuracy_of, gain, pass_at_1_by_level
from core.statistics.decline import fall_from
from core.statistics.estimates import Estimate
from core.statistics.guard import Action
from core.statistics.standing import best_iteration, standing_iterations
from core.types import Evaluated, Role
from services.run_report.labels import Labels, measure_labels
from services.run_report.rows import IterationRows, RunRows, read_rows
from services.views.states import RunState
from storage.rows import RunDetail, StageRow, TrainMetric
from storage.session import Store


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision after an iteration, by the health check or by a person whom it asked."""

    action: Action
    by_a_person: bool
    note: str  # a person's
    back_to: int | None  # the iteration whose Solver the run went back to


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration; t = 0 is the base model. Figures that do not exist yet are None."""

    t: int
    checkpoint: str | None
    accuracy: Accuracy | None
    by_level: dict[str, Estimate]
    validation: Estimate | None  # pass@1 on the benchmark of early stopping
    gain: Accuracy | None  # over the base model
    branch: Accuracy | None  # of the Solver that was trained on labelled data apart from the loop
    labels: Labels | None
    training_labels: Estimate | None  # share of right labels among those that the method made in training
    labelled: Estimate | None  # share of prompts that the method labelled; it gave the others no label
    negative_labels: Estimate | None  # share of wrong answers among those that the method took for wrong
    seconds: dict[str, float]  # stage -> time of its last attempt, for stages that are done
    warnings: tuple[str, ...]
    untested: str | None  # what the drift rules did not test, in words
    decision: Decision | None
    stands: bool  # False if the run was rolled back to an earlier Solver


@dataclass(frozen=True, slots=True)
class RunMeasures:
    run: RunDetail
    state: RunState
    config: RunConfig
    iterations: tuple[Iteration, ...]
    training: tuple[TrainMetric, ...]  # every value finite, or None
    result: Iteration | None  # the last evaluated iteration that stands; its Solver is the run's result so far
    best: int | None  # by pass@1; see `best_iteration`
    last_over_best: Accuracy | None  # change from the best iteration to the result; None if they are the same
    lost: tuple[bool, bool]  # whether pass@1 and greedy accuracy fell since the best one by more than chance explains
    unfinished: tuple[StageRow, ...] = field(default=())
    inherited: Mapping[str, list[int]] = field(default_factory=dict)  # another run -> the iterations that it has made

    @property
    def held_out(self) -> str:
        """ "Held-out", or "Test-time" if the run trains on the questions of its benchmark."""
        return "Test-time" if self.config.test_time else "Held-out"

    def at_last_step(self, role: Role, name: str, t: int) -> float | None:
        of_step = [m.value for m in self.training if (m.role, m.name, m.iteration) == (role, name, t)]
        return of_step[-1] if of_step else None


def measure(store: Store, run: str) -> RunMeasures:
    """Measure a run, which may be in progress. Raises `StoreError` when there is no such run."""
    rows = read_rows(store, run)
    decisions = [_decision(iteration, rows) for iteration in rows.iterations]
    back_to = {t: made.back_to for t, made in enumerate(decisions) if made is not None and made.back_to is not None}
    standing = standing_iterations(len(decisions) - 1, back_to)
    iterations = tuple(
        _iteration(iteration, rows, decision, iteration.t in standing)
        for iteration, decision in zip(rows.iterations, decisions, strict=True)
    )
    evaluated = [iteration for iteration in iterations if iteration.accuracy and iteration.stands]
    scored = {iteration.t: iteration.accuracy.pass_at_1.value for iteration in evaluated if iteration.accuracy}
    best, last = best_iteration(scored, standing), max(scored, default=None)
    best_and_last = None if best is None or last is None or best == last else (best, last)
    return RunMeasures(
        run=rows.run,
        state=rows.state,
        config=rows.config,
        iterations=iterations,
        training=tuple(
            metric if metric.value is None or math.isfinite(metric.value) else replace(metric, value=None)
            for metric in rows.training
        ),
        result=evaluated[-1] if evaluated else None,
        best=best,
        last_over_best=best_and_last and gain(*(rows.iterations[t].evaluated for t in best_and_last)),
        lost=(False, False) if best_and_last is None else _lost(rows, *best_and_last, len(scored.keys() - {0}) - 1),
        unfinished=tuple(
            stage for iteration in rows.iterations for stage in iteration.stages.values() if stage.status != "done"
        ),
        inherited=rows.inherited,
    )


def _iteration(rows: IterationRows, run: RunRows, decision: Decision | None, stands: bool) -> Iteration:
    done = {name: stage for name, stage in rows.stages.items() if stage.finished_at and stage.status == "done"}
    validation = accuracy_of(rows.validated)
    health = done["check_health"].result or {} if "check_health" in done else {}
    return Iteration(
        t=rows.t,
        checkpoint=rows.checkpoint,
        accuracy=accuracy_of(rows.evaluated),
        by_level=pass_at_1_by_level(rows.evaluated),
        validation=None if validation is None else validation.pass_at_1,
        gain=gain(run.iterations[0].evaluated, rows.evaluated) if rows.t else None,
        branch=accuracy_of(rows.branch),
        labels=measure_labels(rows, rows.stats, run.config)
        if rows.stats and run.config.votes_before_training
        else None,
        training_labels=rows.training_labels.get(TRAINING_LABELS),
        labelled=rows.training_labels.get(LABELLED_SHARE),
        negative_labels=rows.training_labels.get(NEGATIVE_LABEL_ACCURACY),
        seconds={
            name: (stage.finished_at - stage.started_at).total_seconds()
            for name, stage in done.items()
            if stage.finished_at
        },
        warnings=tuple(map(str, health.get("warnings", ()))),
        untested=health.get("untested"),
        decision=decision,
        stands=stands,
    )


def _lost(run: RunRows, best_t: int, last_t: int, others: int) -> tuple[bool, bool]:
    """Whether pass@1 and greedy accuracy fell by more than chance explains from the best of some iterations. Any of the
    `others` may be the best by chance, so they share the rate of false alarms, as in the guard's `decline`."""

    def greedily(results: Sequence[Evaluated]) -> list[Evaluated]:
        return [replace(result, samples=1, correct=int(bool(result.greedy_correct))) for result in results]

    best, last, settings = run.iterations[best_t].evaluated, run.iterations[last_t].evaluated, run.config.alerts
    falls = fall_from(best, last, others, settings), fall_from(greedily(best), greedily(last), others, settings)
    of_samples, of_greedy = (fall is not None and fall.p <= settings.rate / others for fall in falls)
    return of_samples, of_greedy


def _decision(rows: IterationRows, run: RunRows) -> Decision | None:
    results = {name: stage.result or {} for name, stage in rows.stages.items() if stage.status == "done"}
    decision = results.get("ask_a_person") or results.get("check_health")
    if not decision:
        return None
    solver = (decision.get("back_to") or {}).get("solver")
    back_to = next((iteration.t for iteration in run.iterations if solver and iteration.checkpoint == solver), None)
    return Decision(decision.get("action", "ignore"), "ask_a_person" in results, str(decision.get("note", "")), back_to)
