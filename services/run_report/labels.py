"""The figures of an iteration's questions and pseudo-labels: verdicts, votes, and audits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from core.questions.filtering import FilterStats
from core.settings.config import RunConfig
from core.statistics.estimates import Estimate, mean, mean_share
from core.types import LabelledQuestion, Verdict
from core.worlds import difficulty
from services.run_report.rows import IterationRows


@dataclass(frozen=True, slots=True)
class Histogram:
    """The questions asked, by p_hat: `counts[j]` are nearest to j/m, and `right[j]` of these have a right label."""

    p_hat: tuple[float, ...]
    counts: tuple[int, ...]
    right: tuple[int, ...] | None  # None before the audit


@dataclass(frozen=True, slots=True)
class Operations:
    """How many operations the questions have. Only questions that the exact oracle can read count; empty without it."""

    mean: Estimate | None
    counts: dict[int, int]  # operations -> questions


@dataclass(frozen=True, slots=True)
class Audit:
    """One oracle's figures of an iteration's pseudo-labels, from the run's series (`services.drift`)."""

    accuracy_kept: Estimate | None = None
    accuracy_all: Estimate | None = None
    ill_posed: Estimate | None = None  # of all questions that the oracle graded


@dataclass(frozen=True, slots=True)
class Labels:
    """The figures of an iteration's questions, pseudo-labels and audits."""

    stats: FilterStats
    verdicts: dict[Verdict, int]
    asked: int
    p_hat: Estimate | None
    uncertainty: Estimate | None
    histogram: Histogram
    audit: Audit  # by the run's own oracle
    other_audits: dict[str, Audit]  # by other oracles, people among them
    operations: Operations  # of all well-formed candidates
    operations_kept: Operations


def measure_labels(rows: IterationRows, stats: FilterStats, config: RunConfig) -> Labels:
    """Measure an iteration whose questions have been filtered."""
    asked = [row for row in rows.labelled if row.label is not None]
    p_hats = [row.label.p_hat for row in asked if row.label is not None]
    answered = {row.question_id for row in asked if row.label is not None and row.label.answer is not None}
    audited = {label.question_id: label for label in rows.audited if label.question_id in answered}
    kept = [row for row in rows.labelled if row.verdict == "kept"]
    of_oracles = {(point.oracle, point.name, point.over): point.estimate for point in rows.audits}
    audits = {
        oracle: Audit(
            accuracy_kept=of_oracles.get((oracle, "label_accuracy", "kept")),
            accuracy_all=of_oracles.get((oracle, "label_accuracy", "all")),
            ill_posed=of_oracles.get((oracle, "ill_posed_share", "all")),
        )
        for oracle in sorted({point.oracle for point in rows.audits})
    }
    own = audits.pop(config.audit.label or "", Audit())
    has_exact_oracle = config.audit.oracle == "exact"
    m = config.dataset.votes
    counts, right = [0] * (m + 1), [0] * (m + 1)
    for row in asked:
        if row.label is not None:
            counts[nearest := round(row.label.p_hat * m)] += 1
            right[nearest] += row.question_id in audited and audited[row.question_id].verdict == "right"
    return Labels(
        stats=stats,
        verdicts=dict(Counter(row.verdict for row in rows.labelled)),
        asked=len(asked),
        p_hat=mean_share(p_hats),
        uncertainty=mean_share([1 - 2 * abs(p_hat - 0.5) for p_hat in p_hats]),
        histogram=Histogram(tuple(j / m for j in range(m + 1)), tuple(counts), tuple(right) if audited else None),
        audit=own,
        other_audits=audits,
        operations=_operations(rows.labelled if has_exact_oracle else ()),
        operations_kept=_operations(kept if has_exact_oracle else ()),
    )


def _operations(questions: Sequence[LabelledQuestion]) -> Operations:
    difficulties = [difficulty(row.text) for row in questions if row.text is not None]
    counts = [count for count in difficulties if count is not None]
    return Operations(mean(counts), dict(sorted(Counter(counts).items())))
