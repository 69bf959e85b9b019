"""An iteration's questions and pseudo-labels measured: what became of them, and what the oracle says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from core.questions.filtering import FilterStats
from core.settings.config import RunConfig
from core.statistics.estimates import Estimate, mean, mean_share
from core.types import LabelledQuestion, OracleLabel, Verdict
from orchestrator.report.rows import IterationRows
from services.oracles import exact
from storage.rows import SeriesPoint

SAMPLES = 2  # questions shown an iteration, of those with a right label and of the others


@dataclass(frozen=True, slots=True)
class Histogram:
    """Questions asked, by p_hat: `counts[j]` are those nearest to j/m; `right[j]` of them have a right label."""

    p_hat: tuple[float, ...]
    counts: tuple[int, ...]
    right: tuple[int, ...] | None  # None before the audit


@dataclass(frozen=True, slots=True)
class Operations:
    """How many operations the questions take that the exact oracle can read; empty without that oracle."""

    mean: Estimate | None
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
class Audit:
    """What one oracle says of an iteration's pseudo-labels: the figures of the run's series (`services.drift`)."""

    accuracy_kept: Estimate | None = None
    accuracy_all: Estimate | None = None
    ill_posed: Estimate | None = None  # of all questions that the oracle was asked about


@dataclass(frozen=True, slots=True)
class Labels:
    """An iteration's questions, their pseudo-labels, and what oracles say of those."""

    stats: FilterStats
    verdicts: dict[Verdict, int]
    asked: int
    p_hat: Estimate | None
    uncertainty: Estimate | None
    histogram: Histogram
    audit: Audit  # by the run's own oracle
    other_audits: dict[str, Audit]  # by those who were asked besides, people among them
    operations: Operations  # of all well-formed candidates
    operations_kept: Operations
    samples: tuple[Sample, ...]


def measure_labels(rows: IterationRows, stats: FilterStats, config: RunConfig) -> Labels:
    """An iteration whose questions have been filtered."""
    asked = [row for row in rows.labelled if row.label is not None]
    p_hats = [row.label.p_hat for row in asked if row.label is not None]
    answered = {row.question_id for row in asked if row.label is not None and row.label.answer is not None}
    audited = {label.question_id: label for label in rows.audited if label.question_id in answered}
    kept = [row for row in rows.labelled if row.verdict == "kept"]
    audits = _audits(rows.audits)
    own = audits.pop(config.audit.label or "", Audit())
    readable = config.audit.oracle == "exact"
    return Labels(
        stats=stats,
        verdicts=dict(Counter(row.verdict for row in rows.labelled)),
        asked=len(asked),
        p_hat=mean_share(p_hats),
        uncertainty=mean_share([1 - 2 * abs(p_hat - 0.5) for p_hat in p_hats]),
        histogram=_histogram(asked, config.dataset.votes, audited),
        audit=own,
        other_audits=audits,
        operations=_operations(rows.labelled if readable else ()),
        operations_kept=_operations(kept if readable else ()),
        samples=_samples(kept, audited),
    )


def _histogram(asked: Sequence[LabelledQuestion], m: int, audited: dict[str, OracleLabel]) -> Histogram:
    counts, right = [0] * (m + 1), [0] * (m + 1)
    for row in asked:
        if row.label is not None:
            bin_index = round(row.label.p_hat * m)
            counts[bin_index] += 1
            right[bin_index] += row.question_id in audited and audited[row.question_id].verdict == "right"
    return Histogram(tuple(j / m for j in range(m + 1)), tuple(counts), tuple(right) if audited else None)


def _operations(questions: Sequence[LabelledQuestion]) -> Operations:
    difficulties = [exact.difficulty(row.text) for row in questions if row.text is not None]
    counts = [count for count in difficulties if count is not None]
    return Operations(mean(counts), dict(sorted(Counter(counts).items())))


def _samples(kept: Sequence[LabelledQuestion], audited: dict[str, OracleLabel]) -> tuple[Sample, ...]:
    """The first ones in order of generation, not the prettiest: so many right ones, so many others."""
    shown: list[Sample] = []
    for row in kept:
        label, audit = row.label, audited.get(row.question_id)
        verdict = audit.verdict if audit else "unaudited"
        alike = sum((sample.verdict == "right") == (verdict == "right") for sample in shown)
        if label is not None and label.answer is not None and row.text is not None and alike < SAMPLES:
            truth = audit.truth if audit else None
            shown.append(
                Sample(row.question_id, row.text, label.answer, truth, verdict, label.classes, label.m, label.parsed)
            )
    return tuple(sorted(shown, key=lambda sample: sample.verdict != "right"))


def _audits(points: Sequence[SeriesPoint]) -> dict[str, Audit]:
    figures = {(point.oracle, point.name, point.over): point.estimate for point in points}
    return {
        oracle: Audit(
            accuracy_kept=figures.get((oracle, "label_accuracy", "kept")),
            accuracy_all=figures.get((oracle, "label_accuracy", "all")),
            ill_posed=figures.get((oracle, "ill_posed_share", "all")),
        )
        for oracle in sorted({point.oracle for point in points})
    }
