"""How often models that were asked for a gate vote for a question's label."""

from __future__ import annotations

from collections.abc import Sequence

from core.challenger.gates.base import Candidate
from core.grading.grader import Grader
from core.questions.voting import vote_many
from core.types import EqualityVerdict


def agreements(candidates: Sequence[Candidate], grader: Grader) -> list[list[EqualityVerdict]]:
    """For each candidate, whether the majority of each voter equals its label, in the order of its evidence.

    A voter with no answer at all does not agree. One of whom nothing could be asked is left out. Raises `GradingError`.
    """
    asked = [[row for row in candidate.evidence if row.answers] for candidate in candidates]
    votes = iter(vote_many([row.answers for rows in asked for row in rows], grader))
    majorities = [[next(votes).answer for _ in rows] for rows in asked]
    pairs = [
        (answer, candidate.label.answer or "")
        for candidate, answers in zip(candidates, majorities, strict=True)
        for answer in answers
        if answer is not None
    ]
    compared = iter(grader.compare_many(pairs))
    return [["unequal" if answer is None else next(compared).verdict for answer in answers] for answers in majorities]
