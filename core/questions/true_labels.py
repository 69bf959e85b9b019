"""Where a true label is worth most (CARE, arXiv 2605.25864), judged by the votes alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from core.types import PseudoLabel


def label_gain(label_share: float, truth_share: float, votes: int) -> float:
    """CARE's gain of a true label where the pseudo-label is wrong; range [0, infinity).

    It is the distance `|A(truth) - A(label)|` between the z-scored rewards of so many answers, of which the shares f
    and g agree with the label and with the truth: `sqrt(2n (1 + sqrt(f g / ((1 - f) (1 - g)))))`. Where no answer is
    the truth, the rewards by the truth are all equal, and the distance is `sqrt(n)`; where all answers are the label,
    it is 0.
    """
    f, g = label_share, truth_share
    if f >= 1:
        return 0.0
    return math.sqrt(2 * votes * (1 + math.sqrt(f * g / ((1 - f) * (1 - g))))) if g > 0 else math.sqrt(votes)


def expected_gain(label: PseudoLabel) -> float:
    """The gain that is to be expected, if each answer is right with the share of the votes that it has."""
    (_, first), *others = label.classes
    return sum(votes / label.m * label_gain(first / label.m, votes / label.m, label.m) for _, votes in others)


def worth_most(labels: Sequence[PseudoLabel], share: float) -> set[int]:
    """The indices of the share of the labels of whose truth most is expected. Of equals the first is taken."""
    gains = [expected_gain(label) for label in labels]
    return set(sorted(range(len(labels)), key=lambda i: (-gains[i], i))[: round(share * len(labels))])
