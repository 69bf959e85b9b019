from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.advantages import advantages_zscore

REWARDS = st.lists(st.floats(-10, 10), min_size=1, max_size=16)


def test_by_hand() -> None:
    # Rewards 1, 0, 0, 0, 0: mean 0.2, unbiased variance (0.64 + 4 * 0.04) / 4 = 0.2, deviation 0.447214.
    deviation = math.sqrt(0.2) + 1e-6
    expected = [0.8 / deviation, *[-0.2 / deviation] * 4]
    assert advantages_zscore(np.array([1.0, 0, 0, 0, 0])) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1 / 3, -2.7])
@pytest.mark.parametrize("group", [1, 5, 7])
def test_equal_rewards_are_exact_zeros(reward: float, group: int) -> None:
    assert advantages_zscore(np.full(group, reward)).tolist() == [0.0] * group


@given(REWARDS)
def test_they_sum_to_zero_and_keep_the_order(rewards: list[float]) -> None:
    advantages = advantages_zscore(np.array(rewards))
    assert advantages.shape == (len(rewards),)
    assert advantages.sum() == pytest.approx(0, abs=1e-6)
    order = np.argsort(rewards, kind="stable")
    assert (np.diff(advantages[order]) >= 0).all()


@given(REWARDS, st.randoms(use_true_random=False))
def test_they_follow_a_permutation(rewards: list[float], random: object) -> None:
    order = list(range(len(rewards)))
    random.shuffle(order)
    shuffled = advantages_zscore(np.array(rewards)[order])
    assert shuffled == pytest.approx(advantages_zscore(np.array(rewards))[order], abs=1e-6)


@pytest.mark.parametrize("rewards", [[], [[1.0, 0.0]], [1.0, math.nan], [math.inf, 0.0]])
def test_what_is_not_a_row_of_numbers_is_refused(rewards: list[object]) -> None:
    with pytest.raises(ValueError, match="rewards: expected finite numbers of shape"):
        advantages_zscore(np.array(rewards))
