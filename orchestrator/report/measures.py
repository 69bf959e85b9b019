"""A run measured: every share and mean with its 95% interval and the number of items it rests on.

Intervals: a share of questions has Wilson's; a mean over questions the normal one, over questions and not over
samples, since the samples of one question are not independent. A gain is a paired difference over the same questions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from core.config import RunConfig
from core.drift import Estimate, mean_interval, paired_difference, share
from core.filtering import FilterStats
from core.types import Evaluated, LabelledQuestion, OracleLabel, Role, Verdict
from orchestrator.report.rows import IterationRows, RunRows, read_rows
from services.oracles import exact
from storage.rows import RunRow, StageRow, TrainMetric
from storage.session import Store

SAMPLES = 2  # questions shown an iteration, of those with a right label and of the others


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure; `ci95` is None where a single item shows no spread."""

    value: float
    ci95: tuple[float, float] | None
    n: int


@dataclass(frozen=True, slots=True)
class Accuracy:
    """One checkpoint on the held-out benchmark, or the difference between two."""

    pass_at_1: Measured
    greedy: Measured
    majority: Measured


@dataclass(frozen=True, slots=True)
class Histogram:
    """Questions asked, by p_hat: `counts[j]` are those nearest to j/m; `right[j]` of them have a right label."""

    p_hat: tuple[float, ...]
    counts: tuple[int, ...]
    right: tuple[int, ...] | None  # None before the audit


@dataclass(frozen=True, slots=True)
class Operations:
    """How many operations the questions take that the exact oracle can read; empty without that oracle."""

    mean: Measured | None
    counts: dict[int, int]  # operations -> questions


@dataclass(frozen=True, slots=True)
class Sample:
    """A kept question as the report shows it."""

    question_id: str
    text: str
    label: str
    truth: str | None
    verdict: str
    classes: tuple[tuple[str, int], ...]  # (answer, votes), most votes first
    m: int
    parsed: int


@dataclass(frozen=True, slots=True)
class Labels:
    """An iteration's questions, their pseudo-labels, and what the oracle says of those."""

    stats: FilterStats
    verdicts: dict[Verdict, int]
    asked: int
    p_hat: Measured | None
    uncertainty: Measured | None
    histogram: Histogram
    accuracy_kept: Measured | None
    accuracy_all: Measured | None
    ill_posed: Measured | None  # of all questions that the oracle looked at
    operations: Operations  # of all well-formed candidates
    operations_kept: Operations
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration; t = 0 is the base model. What is not there yet is None."""

    t: int
    checkpoint: str | None
    accuracy: Accuracy | None
    by_level: dict[str, Measured]
    gain: Accuracy | None  # over the base model
    labels: Labels | None
    seconds: dict[str, float]  # of the stages that are done, each in its last attempt
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunMeasures:
    run: RunRow
    config: RunConfig
    iterations: tuple[Iteration, ...]
    training: tuple[TrainMetric, ...]  # every value finite, or None
    best: int | None  # the iteration with the highest pass@1, picked after the fact
    last_over_best: Accuracy | None  # None when the last evaluated iteration is the best one
    unfinished: tuple[StageRow, ...] = field(default=())

    def metric(self, role: Role, name: str) -> list[TrainMetric]:
        return [metric for metric in self.training if metric.role == role and metric.name == name]

    def at_last_step(self, role: Role, name: str, t: int) -> float | None:
        values = [metric.value for metric in self.metric(role, name) if metric.iteration == t]
        return values[-1] if values else None


def measure(store: Store, run: str) -> RunMeasures:
    """Measure a run, however far it is. Raises `StoreError` when there is no such run."""
    rows = read_rows(store, run)
    base = rows.iterations[0].evaluated
    iterations = tuple(_iteration(each, base, rows.config) for each in rows.iterations)
    scored = [(each.accuracy.pass_at_1.value, -each.t) for each in iterations if each.accuracy and each.t]
    best, last = (-max(scored)[1], -scored[-1][1]) if scored else (None, None)
    fallen = None if best is None or last is None or best == last else (best, last)
    return RunMeasures(
        run=rows.run,
        config=rows.config,
        iterations=iterations,
        training=tuple(map(_finite, rows.training)),
        best=best,
        last_over_best=fallen and _difference(*(rows.iterations[t].evaluated for t in fallen)),
        unfinished=_unfinished(rows),
    )


def _iteration(rows: IterationRows, base: Sequence[Evaluated], config: RunConfig) -> Iteration:
    done = {name: stage for name, stage in rows.stages.items() if stage.finished_at and stage.status == "done"}
    health = done["check_health"].result or {} if "check_health" in done else {}
    return Iteration(
        t=rows.t,
        checkpoint=rows.checkpoint,
        accuracy=_accuracy(rows.evaluated),
        by_level=_by_level(rows.evaluated),
        gain=_difference(base, rows.evaluated) if rows.t else None,
        labels=None if rows.stats is None else _labels(rows, rows.stats, config),
        seconds={
            name: (stage.finished_at - stage.started_at).total_seconds()
            for name, stage in done.items()
            if stage.finished_at
        },
        warnings=tuple(map(str, health.get("warnings", ()))),
    )


def _accuracy(items: Sequence[Evaluated]) -> Accuracy | None:
    pass_at_1 = _clipped(_mean([_rate(item) for item in items]))
    greedy = _share(sum(item.greedy_correct for item in items), len(items))
    majority = _share(sum(item.majority_correct for item in items), len(items))
    return Accuracy(pass_at_1, greedy, majority) if pass_at_1 and greedy and majority else None


def _by_level(items: Sequence[Evaluated]) -> dict[str, Measured]:
    """Level -> pass@1, numbered levels in order of their numbers; items without a level are left out."""
    rates: dict[str, list[float]] = {}
    for item in items:
        if item.level is not None:
            rates.setdefault(item.level, []).append(_rate(item))
    order = sorted(rates, key=lambda level: (0, int(level), "") if level.isdecimal() else (1, 0, level))
    return {level: found for level in order if (found := _clipped(_mean(rates[level])))}


def _difference(before: Sequence[Evaluated], after: Sequence[Evaluated]) -> Accuracy | None:
    """After less before, over the items that both have."""
    first, second = ({item.item_id: item for item in items} for items in (before, after))
    pairs = [(first[item], second[item]) for item in sorted(first.keys() & second.keys())]

    def difference(score: Callable[[Evaluated], float]) -> Measured | None:
        return _measured(paired_difference([score(a) for a, _ in pairs], [score(b) for _, b in pairs]))

    pass_at_1 = difference(_rate)
    greedy = difference(lambda item: float(item.greedy_correct))
    majority = difference(lambda item: float(item.majority_correct))
    return Accuracy(pass_at_1, greedy, majority) if pass_at_1 and greedy and majority else None


def _labels(rows: IterationRows, stats: FilterStats, config: RunConfig) -> Labels:
    asked = [row for row in rows.labelled if row.label is not None]
    p_hats = [row.label.p_hat for row in asked if row.label is not None]
    answered = {row.question_id for row in asked if row.label is not None and row.label.answer is not None}
    audited = {label.question_id: label for label in rows.audited if label.question_id in answered}
    kept = [row for row in rows.labelled if row.verdict == "kept"]
    audited_kept = [audited[row.question_id] for row in kept if row.question_id in audited]
    readable = config.audit.oracle == "exact"
    return Labels(
        stats=stats,
        verdicts=dict(Counter(row.verdict for row in rows.labelled)),
        asked=len(asked),
        p_hat=_clipped(_mean(p_hats)),
        uncertainty=_clipped(_mean([1 - 2 * abs(p_hat - 0.5) for p_hat in p_hats])),
        histogram=_histogram(asked, config.dataset.votes, audited),
        accuracy_kept=_share_of("right", audited_kept),
        accuracy_all=_share_of("right", list(audited.values())),
        ill_posed=_share_of("ill_posed", rows.audited),
        operations=_operations(rows.labelled if readable else ()),
        operations_kept=_operations(kept if readable else ()),
        samples=_samples(kept, audited),
    )


def _histogram(asked: Sequence[LabelledQuestion], m: int, audited: dict[str, OracleLabel]) -> Histogram:
    counts, right = [0] * (m + 1), [0] * (m + 1)
    for row in asked:
        if row.label is not None:
            place = round(row.label.p_hat * m)
            counts[place] += 1
            right[place] += row.question_id in audited and audited[row.question_id].verdict == "right"
    return Histogram(tuple(j / m for j in range(m + 1)), tuple(counts), tuple(right) if audited else None)


def _operations(questions: Sequence[LabelledQuestion]) -> Operations:
    found = [exact.difficulty(row.text) for row in questions if row.text is not None]
    counts = [count for count in found if count is not None]
    return Operations(_mean(counts), dict(sorted(Counter(counts).items())))


def _samples(kept: Sequence[LabelledQuestion], audited: dict[str, OracleLabel]) -> tuple[Sample, ...]:
    """The first ones in order of generation, not the prettiest: so many right ones, so many others."""
    shown: list[Sample] = []
    for row in kept:
        label, found = row.label, audited.get(row.question_id)
        verdict = found.verdict if found else "unaudited"
        alike = sum((sample.verdict == "right") == (verdict == "right") for sample in shown)
        if label is not None and label.answer is not None and row.text is not None and alike < SAMPLES:
            truth = found.truth if found else None
            shown.append(
                Sample(row.question_id, row.text, label.answer, truth, verdict, label.classes, label.m, label.parsed)
            )
    return tuple(sorted(shown, key=lambda sample: sample.verdict != "right"))


def _unfinished(rows: RunRows) -> tuple[StageRow, ...]:
    return tuple(stage for each in rows.iterations for stage in each.stages.values() if stage.status != "done")


def _rate(item: Evaluated) -> float:
    return item.correct / item.samples


def _mean(values: Sequence[float]) -> Measured | None:
    return _measured(mean_interval(values)) or (Measured(fmean(values), None, len(values)) if values else None)


def _share(successes: int, n: int) -> Measured | None:
    return _measured(share(successes, n))


def _share_of(verdict: str, labels: Sequence[OracleLabel]) -> Measured | None:
    return _share(sum(label.verdict == verdict for label in labels), len(labels))


def _measured(found: Estimate | None) -> Measured | None:
    return None if found is None else Measured(found.value, (found.lo, found.hi), found.n)


def _clipped(found: Measured | None) -> Measured | None:
    """The mean of shares: the normal interval may leave 0..1, what it is of cannot."""
    if found is None or found.ci95 is None:
        return found
    lo, hi = found.ci95
    return Measured(found.value, (max(lo, 0.0), min(hi, 1.0)), found.n)


def _finite(metric: TrainMetric) -> TrainMetric:
    if metric.value is None or math.isfinite(metric.value):
        return metric
    return TrainMetric(metric.iteration, metric.role, metric.step, metric.name, None)
