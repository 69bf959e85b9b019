"""The exact oracle: a program that knows the answer to every question of the tiny worlds (`core.worlds`)."""

from __future__ import annotations

from core.grading.answers import number_of
from core.types import OracleLabel, OracleVerdict
from core.worlds import solve

ILL_POSED = "no answer"  # stands for the answer of a question that has none; equal to no number


def audit(question_id: str, question: str, pseudo_label: str | None) -> OracleLabel:
    """The oracle's label of a question. Numbers are compared exactly; a pseudo-label that is not a number is wrong.

    The verdict is `unknown` if a well-posed question has no pseudo-label, because then nothing can be right or wrong.
    """
    truth = solve(question)
    verdict: OracleVerdict
    if truth is None:
        verdict = "ill_posed"
    elif pseudo_label is None:
        verdict = "unknown"
    else:
        verdict = "right" if number_of(pseudo_label) == truth else "wrong"
    return OracleLabel(question_id, "exact", verdict, None if truth is None else str(truth))
