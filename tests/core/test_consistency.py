"""Accuracy by the majority's share of the votes (SRT, Figure 9), by hand."""

from __future__ import annotations

import pytest

from core.statistics.consistency import ConsistencyPoint, by_consistency
from core.statistics.curves import Tally

# Four questions with four replies each; in the second place, whether the class is right.
AGREED = Tally(((4, True),), 0)  # 4 of 4 replies agree
SPLIT = Tally(((2, True), (2, False)), 0)  # 2 of 4; a tie
UNPARSED = Tally(((2, False), (1, True)), 1)  # 2 of 3 answers, and 2 of 4 replies
SILENT = Tally((), 4)


def point(threshold: float) -> ConsistencyPoint:
    [matching] = [point for point in by_consistency([AGREED, SPLIT, UNPARSED, SILENT]) if point.threshold == threshold]
    return matching


def test_by_hand() -> None:
    thresholds = [point.threshold for point in by_consistency([AGREED])]
    assert thresholds == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]
    # A question without any answer has no accuracy, and is left at the threshold 0 alone.
    every = point(0)
    assert (every.answer.value, every.answer.n) == (pytest.approx((1 + 1 / 2 + 1 / 3) / 3), 3)
    assert every.majority.value == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert (every.left.value, every.left.n) == (1, 4)
    assert (point(0.5).answer, point(0.5).majority, point(0.5).left.value) == (every.answer, every.majority, 3 / 4)
    # 2 of 3 answers are enough for 0.6, but 2 of 4 replies are not.
    most = point(0.6)
    assert (most.answer.value, most.majority.value) == (pytest.approx((1 + 1 / 3) / 2), 1 / 2)
    assert most.left.value == 1 / 4
    for threshold in (0.7, 1):
        agreed = point(threshold)
        assert (agreed.answer.value, agreed.majority.value, agreed.majority.n) == (1, 1, 1)
        assert agreed.left.value == 1 / 4


def test_a_threshold_that_no_question_reaches_has_no_accuracy() -> None:
    at_0_6 = by_consistency([SPLIT])[6]
    assert (at_0_6.answer, at_0_6.majority, at_0_6.left.value) == (None, None, 0)
    assert by_consistency([SPLIT])[5].answer is not None  # exactly half
    assert by_consistency([]) == []
