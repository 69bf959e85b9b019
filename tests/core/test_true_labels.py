"""CARE's gain of a true label, against its definition, and whose labels are bought."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.questions.true_labels import expected_gain, label_gain, worth_most
from tests.synthetic_run import vote_of


@given(st.integers(2, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n), st.integers(0, n))))
def test_the_gain_is_the_distance_between_the_advantages_by_either_label(counts: tuple[int, int, int]) -> None:
    n, label, truth = counts
    truth = min(truth, n - label)
    rewards = np.zeros((2, n))
    rewards[0, :label], rewards[1, label : label + truth] = 1, 1
    spread = rewards.std(axis=1, keepdims=True)
    advantages = np.divide(rewards - rewards.mean(axis=1, keepdims=True), spread, where=spread > 0, out=0 * rewards)
    expected = float(np.linalg.norm(advantages[1] - advantages[0]))
    assert label_gain(label / n, truth / n, n) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("votes", "gain"),
    [
        ([("4", 10)], 0),  # no other answer that could be the truth
        ([("4", 6)], 0),  # the others have no answer
        ([("4", 5), ("7", 5)], 0.5 * math.sqrt(20 * 2)),
        ([("4", 6), ("7", 4)], 0.4 * math.sqrt(20 * 2)),
        ([("4", 6), ("7", 2), ("8", 2)], 2 * 0.2 * math.sqrt(20 * (1 + math.sqrt(0.12 / 0.32)))),
    ],
)
def test_the_gain_that_votes_let_expect(votes: list[tuple[str, int]], gain: float) -> None:
    assert expected_gain(vote_of(*votes)) == pytest.approx(gain)


@pytest.mark.parametrize(("share", "bought"), [(0, set()), (0.25, {1}), (0.5, {1, 2}), (0.75, {0, 1, 2})])
def test_labels_are_bought_where_most_is_expected_of_them(share: float, bought: set[int]) -> None:
    labels = [vote_of(("4", 9), ("7", 1)), vote_of(("4", 5), ("7", 5)), vote_of(("4", 6), ("7", 4))]
    assert worth_most([*labels, vote_of(("4", 9), ("7", 1))], share) == bought
