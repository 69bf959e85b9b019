"""The rewards that depend on strategies: Poly-EPO's and GRPO+DIV's. test_methods_sets.py tests Poly-EPO's sets."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reward_groups import any_groups, group_of, permuted

from core.methods.poly_epo import GrpoDiv, PolyEpo
from core.types import Group


def test_poly_epo_s_reward_is_agreement_whatever_the_strategies() -> None:
    group = group_of(["7", "7", "8", "8"], label="7", clusters=(1, 2, 3, 100))
    scored = PolyEpo().score(group)
    assert (scored.label, scored.rewards.tolist(), scored.learn) == ("7", [1, 1, 0, 0], True)


def test_grpo_div_by_hand() -> None:
    # N = 4. A cluster of two earns (4/2 - 1)/3 = 1/3, a cluster of one (4/1 - 1)/3 = 1, the degenerate one nothing.
    # lambda is 0.5.
    group = group_of(["7", "8", "8", "7"], label="7", clusters=(1, 1, 2, 100))
    assert GrpoDiv().score(group).rewards == pytest.approx([1 + 1 / 6, 1 / 6, 1 / 2, 1])


def test_grpo_div_with_equal_strategies_with_different_ones_and_with_a_single_rollout() -> None:
    alike = group_of(["7", "7", "8"], label="7", clusters=(1, 1, 1))
    assert GrpoDiv().score(alike).rewards.tolist() == [1, 1, 0]
    differ = group_of(["7", "7", "8"], label="7", clusters=(3, 1, 2))
    assert GrpoDiv().score(differ).rewards.tolist() == [1.5, 1.5, 0.5]
    assert GrpoDiv().score(group_of(["7"], label="7", clusters=(1,))).rewards.tolist() == [1]


def test_a_group_whose_strategies_are_unknown_is_dropped() -> None:
    group = group_of(["7", "8"], label="7")
    assert not PolyEpo().score(group).learn
    assert not GrpoDiv().score(group).learn
    assert PolyEpo().needs == GrpoDiv().needs == {"clusters", "label"}


@given(group=any_groups(), random=st.randoms(use_true_random=False))
def test_rewards_are_between_0_and_1_5_and_follow_a_permutation(group: Group, random: Random) -> None:
    order = list(range(len(group.answers)))
    random.shuffle(order)
    scored = GrpoDiv().score(group)
    assert ((scored.rewards >= 0) & (scored.rewards <= 1.5)).all()
    assert GrpoDiv().score(permuted(group, order)).rewards == pytest.approx(scored.rewards[order])
