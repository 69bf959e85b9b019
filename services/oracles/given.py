"""The oracle of given prompts: the true answers that came with them."""

from __future__ import annotations

from collections.abc import Sequence

from core.grading.grader import Grader
from core.types import OracleLabel, OracleVerdict


def audit(rows: Sequence[tuple[str, str, str | None]], grader: Grader) -> list[OracleLabel]:
    """What the oracle says of each (question id, true answer, pseudo-label).

    `unknown` is a question without a pseudo-label, or one that the grader cannot tell from the truth.
    """
    comparisons = iter(grader.compare_many([(label, truth) for _, truth, label in rows if label is not None]))
    verdicts: dict[str, OracleVerdict] = {"equal": "right", "unequal": "wrong", "unknown": "unknown"}
    return [
        OracleLabel(i, "given", "unknown" if label is None else verdicts[next(comparisons).verdict], truth)
        for i, truth, label in rows
    ]
