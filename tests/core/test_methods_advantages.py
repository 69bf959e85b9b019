from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.methods import Objective
from core.methods.poly_epo import Grpo, PassAtN, PolyEpo
from core.methods.rzero import RZero
from core.methods.scrl import Scrl
from core.methods.srt import Rloo

REWARDS = st.lists(st.floats(-10, 10), min_size=1, max_size=16)
ESTIMATORS = pytest.mark.parametrize(
    "method", [RZero(), Scrl(advantage="population_zscore"), Grpo(), Rloo()], ids=lambda method: method.advantage
)


def advantages_of(rewards: list[Any], method: Objective) -> list[float]:
    return method.advantages(np.array(rewards)).tolist()


@pytest.mark.parametrize(
    ("method", "advantages"),
    [
        # Rewards 1, 0, 0, 0, 0: mean 0.2, unbiased variance (0.64 + 4 * 0.04) / 4 = 0.2.
        (RZero(), [0.8 / (math.sqrt(0.2) + 1e-6), *[-0.2 / (math.sqrt(0.2) + 1e-6)] * 4]),
        # SCRL eq. 3 with f = 1/5: sqrt(0.8 / 0.2) = 2. The variance is 0.2 * 0.8 = 0.4^2: -0.2 / 0.4 = -0.5.
        (Scrl(advantage="population_zscore"), [2 / (1 + 2.5e-6), *[-0.5 / (1 + 2.5e-6)] * 4]),
        (Grpo(), [0.8, -0.2, -0.2, -0.2, -0.2]),  # less the mean
        (Rloo(), [1, -0.25, -0.25, -0.25, -0.25]),  # each less the mean of the other four (SRT B.1)
    ],
)
def test_advantages_by_hand(method: Objective, advantages: list[float]) -> None:
    assert advantages_of([1.0, 0, 0, 0, 0], method) == pytest.approx(advantages, abs=1e-12)


def test_poly_epo_and_pass_at_n_use_their_own_set_advantages() -> None:
    # test_methods_sets.py works the numbers out.
    rewards = np.array([1.0, 0.0, 0.0])
    assert PolyEpo(set_size=2).advantages(rewards, (1, 1, 2)) == pytest.approx([1 / 8, -1 / 8, 0])
    assert PassAtN(set_size=2).advantages(rewards) == pytest.approx([1 / 3, -1 / 6, -1 / 6])
    with pytest.raises(ValueError, match=r"^clusters: "):
        PolyEpo(set_size=2).advantages(rewards)


@ESTIMATORS
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1 / 3, -2.7])
@pytest.mark.parametrize("group", [1, 5, 7])
def test_equal_rewards_have_advantages_of_exactly_zero(reward: float, group: int, method: Objective) -> None:
    assert advantages_of([reward] * group, method) == [0.0] * group


@ESTIMATORS
@given(REWARDS, st.randoms(use_true_random=False))
def test_advantages_sum_to_zero_keep_the_order_of_the_rewards_and_follow_a_permutation(
    method: Objective, rewards: list[float], random: Random
) -> None:
    advantages = np.array(advantages_of(rewards, method))
    assert advantages.shape == (len(rewards),)
    assert advantages.sum() == pytest.approx(0, abs=1e-6)
    assert (np.diff(advantages[np.argsort(rewards, kind="stable")]) >= 0).all()
    order = list(range(len(rewards)))
    random.shuffle(order)
    assert advantages_of([rewards[i] for i in order], method) == pytest.approx(advantages[order], abs=1e-6)


@pytest.mark.parametrize("rewards", [[], [[1.0, 0.0]], [1.0, math.nan], [math.inf, 0.0]])
def test_rewards_that_are_not_a_list_of_finite_numbers_are_refused(rewards: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"^rewards: "):
        advantages_of(rewards, RZero())
