"""The oracle of given prompts, which knows the true answers that came with the prompts."""

from __future__ import annotations

from collections.abc import Sequence

from core.grading.grader import Grader
from core.types import OracleLabel, OracleVerdict


def audit(rows: Sequence[tuple[str, str, str | None]], grader: Grader) -> list[OracleLabel]:
    """The oracle's label of each (question id, true answer, pseudo-label).

    The verdict is `unknown` if there is no pseudo-label, or if the grader cannot decide whether it equals the truth.
    """
    comparisons = iter(grader.compare_many([(label, truth) for _, truth, label in rows if label is not None]))
    verdicts: dict[str, OracleVerdict] = {"equal": "right", "unequal": "wrong", "unknown": "unknown"}
    return [
        OracleLabel(question_id, "given", "unknown" if label is None else verdicts[next(comparisons).verdict], truth)
        for question_id, truth, label in rows
    ]
