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
    # Shares 3/6, 2/6 and, of the one without an answer, 1/6.
    scored = Empo().score(group_of(["7", "7.0", "8", "8", None, "7"]))
    assert scored.rewards == pytest.approx([1 / 2, 1 / 2, 1 / 3, 1 / 3, 0, 1 / 2])
    assert (scored.label, scored.learn) == ("7", True)
    entropy = -(math.log(1 / 2) / 2 + math.log(1 / 3) / 3 + math.log(1 / 6) / 6)
    assert scored.parts == {"semantic_entropy": pytest.approx(entropy)}


@pytest.mark.parametrize("answers", [["1", "2", "3"], ["1", "2", None], [None, None, None]])
def test_where_all_differ_or_nobody_answers_nothing_is_learned(answers: list[str | None]) -> None:
    scored = Empo().score(group_of(answers))
    assert (scored.label, scored.learn) == (None, False)


def test_all_alike_and_one_alone() -> None:
    scored = Empo().score(group_of(["4", "4"]))
    assert (scored.rewards.tolist(), scored.learn, scored.parts["semantic_entropy"]) == ([1, 1], True, 0)
    assert Empo().score(group_of(["4"])).rewards.tolist() == [1]


@given(group=any_groups(), random=st.randoms(use_true_random=False))
def test_range_and_permutation(group: Group, random: Random) -> None:
    order = list(range(len(group.answers)))
    random.shuffle(order)
    scored = Empo().score(group)
    assert ((scored.rewards >= 0) & (scored.rewards <= 1)).all()
    assert Empo().score(permuted(group, order)).rewards.tolist() == scored.rewards[order].tolist()
