"""EMPO by hand, from the released reward (trl/src/open_r1/rewards.py)."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reward_groups import any_groups, group_of, permuted

from core.methods.empo import Empo
from core.types import Group


def test_an_answer_earns_its_share_of_all_rollouts() -> None:
    # Shares: 3/6, 2/6, and 1/6 for the rollout without an answer.
    scored = Empo().score(group_of(["7", "7.0", "8", "8", None, "7"]))
    assert scored.rewards == pytest.approx([1 / 2, 1 / 2, 1 / 3, 1 / 3, 0, 1 / 2])
    assert (scored.label, scored.learn) == ("7", True)
    entropy = -(math.log(1 / 2) / 2 + math.log(1 / 3) / 3 + math.log(1 / 6) / 6)
    assert scored.parts == {"semantic_entropy": pytest.approx(entropy)}


@pytest.mark.parametrize("answers", [["1", "2", "3"], ["1", "2", None], [None, None, None]])
def test_a_group_whose_answers_all_differ_or_are_missing_is_not_learned_from(answers: list[str | None]) -> None:
    scored = Empo().score(group_of(answers))
    assert (scored.label, scored.learn) == (None, False)


def test_equal_answers_and_a_single_rollout_earn_one() -> None:
    scored = Empo().score(group_of(["4", "4"]))
    assert (scored.rewards.tolist(), scored.learn, scored.parts["semantic_entropy"]) == ([1, 1], True, 0)
    assert Empo().score(group_of(["4"])).rewards.tolist() == [1]


@given(group=any_groups(), random=st.randoms(use_true_random=False))
def test_rewards_are_between_0_and_1_and_follow_a_permutation(group: Group, random: Random) -> None:
    order = list(range(len(group.answers)))
    random.shuffle(order)
    scored = Empo().score(group)
    assert ((scored.rewards >= 0) & (scored.rewards <= 1)).all()
    assert Empo().score(permuted(group, order)).rewards.tolist() == scored.rewards[order].tolist()
