"""Accuracy on the questions on which a model agrees with itself, by how much it agrees (SRT A.1, Figure 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.statistics.curves import Tally, majority_at_k
from core.statistics.estimates import Estimate, mean_share, share

_STEPS = 10  # thresholds from 0 to 1


@dataclass(frozen=True, slots=True)
class ConsistencyPoint:
    """What remains if only questions count whose majority has at least the share `threshold`. Each n counts questions.

    `answer` is the mean share of right answers among a question's answers, and `majority` the share of questions whose
    majority is right; in a tie each of the largest classes wins with the same probability. Both are over the questions
    whose majority has this share of the answers, and None if there are none. Replies without an answer do not count.
    `left` is the share of all questions whose majority has this share of all replies, as in the paper.
    """

    threshold: float
    answer: Estimate | None
    majority: Estimate | None
    left: Estimate


def by_consistency(tallies: Sequence[Tally]) -> list[ConsistencyPoint]:
    """A point for each of the thresholds 0, 0.1, …, 1; empty without questions."""
    points = list[ConsistencyPoint]()
    for step in range(_STEPS + 1):
        kept = [tally for tally in tallies if tally.classes and _largest(tally) * _STEPS >= step * _answers(tally)]
        left = share(sum(_largest(tally) * _STEPS >= step * tally.n for tally in tallies), len(tallies))
        if left is not None:
            answer = mean_share([tally.right / _answers(tally) for tally in kept])
            majority = mean_share([majority_at_k(tally, tally.n) for tally in kept])
            points.append(ConsistencyPoint(step / _STEPS, answer, majority, left))
    return points


def _largest(tally: Tally) -> int:
    return max((size for size, _ in tally.classes), default=0)


def _answers(tally: Tally) -> int:
    return tally.n - tally.blank
