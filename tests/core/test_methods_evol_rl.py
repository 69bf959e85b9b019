"""EVOL-RL by hand, from sections 2.2, A.2 and A.3 of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from reward_groups import any_groups, group_of

from core.methods.evol_rl import EvolRl
from core.types import Group

OFFICIAL = {"variant": "official"}
VARIANTS = pytest.mark.parametrize("method", [EvolRl(), EvolRl(variant="official")], ids=lambda method: method.variant)

# Unit vectors: a.b = 0, a.c = 0.6, a.d = 0.8, b.c = 0.8, b.d = 0.6, c.d = 0.96.
A, B, C, D = [1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.8, 0.6]
MINUS_A, TWICE_A, FAR = [-1.0, 0.0], [2.0, 0.0], [9.0, 9.0]
NEAR, OTHER = [0.1, 0.2, 0.3], [0.3, 0.1, 0.7]
MIDDLE = 0.5 + 0.5 * 0.23 / 0.28  # of a, b and c below


@pytest.mark.parametrize(
    ("settings", "answers", "embeddings", "label", "rewards"),
    [
        # The majority, with the answer 7, is a, b and c; the minority is d; the fifth rollout has no answer.
        # s: a (0 + 0.6)/2 = 0.3, b (0 + 0.8)/2 = 0.4, c (0.6 + 0.8)/2 = 0.7. m: a 0.8 (d), b 0.8 (c), c 0.96 (d).
        # u = 1 - (s + m)/2: a 0.45, b 0.4, c 0.17. Min-max: 1, 0.23/0.28, 0. Bands: 0.5 + 0.5 v.
        # d is alone: by the formulas it is at the bottom of its band, in the released code at its top.
        ({}, ["7", "7", "7", "3", None], [A, B, C, D, FAR], "7", [1, MIDDLE, 0.5, -1, -1]),
        (OFFICIAL, ["7", "7", "7", "3", None], [A, B, C, D, FAR], "7", [1, MIDDLE, 0.5, -0.5, -1]),
        ({}, ["7", "7", "7", "3"], [TWICE_A, B, C, D], "7", [1, MIDDLE, 0.5, -1]),  # the length does not matter
        # alpha 1: u = 1 - s: 0.7, 0.6, 0.3, so b has 0.3/0.4. alpha 0: u = 1 - m: 0.2, 0.2, 0.04, so b has 1.
        ({"alpha": 1}, ["7", "7", "7", "3"], [A, B, C, D], "7", [1, 0.5 + 0.5 * 0.75, 0.5, -1]),
        ({"alpha": 0}, ["7", "7", "7", "3"], [A, B, C, D], "7", [1, 1, 0.5, -1]),
        # The minority is a, b and c, with three different answers; m and s are as above. The two 7s are equal.
        ({}, ["1", "2", "3", "7", "7"], [A, B, C, D, D], "7", [-0.5, MIDDLE - 1.5, -1, 0.5, 0.5]),
        # 7 and 3 tie, and the smaller key is the majority. The two rollouts of a side are equal, up to rounding.
        ({}, ["3", "3", "7", "7"], [NEAR, NEAR, OTHER, OTHER], "3", [0.5, 0.5, -1, -1]),
        (OFFICIAL, ["3", "3", "7", "7"], [NEAR, NEAR, OTHER, OTHER], "3", [0.75, 0.75, -0.75, -0.75]),
        # All differ: the smallest key is the majority, alone, and its mean similarity is to all others. b and c are the
        # minority: s is 0.8 for both and m is 0.8 for both.
        ({}, ["4", "5", "6"], [A, B, C], "4", [0.5, -1, -1]),
        (OFFICIAL, ["4", "5", "6"], [A, B, C], "4", [1, -0.75, -0.75]),
        # All agree. s as above; m: a 0.6, b 0.8, c 0.8; u: 0.55, 0.4, 0.25.
        ({}, ["7", "7", "7"], [A, B, C], "7", [1, 0.75, 0.5]),
        # Only numbers vote in the paper's variant (A.2). In the released code x wins, so 7 is the minority.
        ({}, ["x", "x", "x", "7", "7"], [A, A, A, A, B], "7", [-1, -1, -1, 0.5, 0.5]),
        (OFFICIAL, ["x", "x", "x", "7", "7"], [A, A, A, A, B], "x", [-1, -1, -1, -0.75, -0.75]),
        # The released code has no other rollout to compare a single valid one with and leaves its reward at -1.
        ({}, [None, "7"], [A, B], "7", [-1, 0.5]),
        (OFFICIAL, [None, "7"], [A, B], "7", [-1, -1]),
        # a and -a have the similarity -1, which the released code clips. The first two have s = (-1 + 0)/2 and m = 0,
        # the third has s = 0 and m = 0. u: 1.25, 1.25, 1.
        ({}, ["7", "7", "7"], [A, MINUS_A, B], "7", [1, 1, 0.5]),
        (OFFICIAL, ["7", "7", "7"], [A, MINUS_A, B], "7", [0.75, 0.75, 0.75]),
        # With given labels the right answers are the majority.
        ({"labels": "offline"}, ["3", "7", "7", "7"], [A, B, B, B], "3", [0.5, -1, -1, -1]),
    ],
)
def test_the_bands_of_majority_and_minority_by_hand(
    settings: dict[str, Any],
    answers: list[str | None],
    embeddings: list[list[float]],
    label: str,
    rewards: list[float],
) -> None:
    scored = EvolRl(**settings).score(group_of(answers, "3", embeddings=embeddings))
    assert scored.rewards == pytest.approx(rewards, abs=1e-7)
    assert scored.label == label


@VARIANTS
def test_the_parts_of_a_reward_by_hand(method: EvolRl) -> None:
    """The novelties are those of the first case; d is alone, so s is its mean to all others, (0.8 + 0.6 + 0.96)/3."""
    scored = method.score(group_of(["7", "7", "7", "3", None], embeddings=[A, B, C, D, FAR]))
    *valid, invalid = scored.rollout_parts
    assert invalid == {"valid": 0}
    assert [(part["valid"], part["majority"]) for part in valid] == [(1, 1), (1, 1), (1, 1), (1, 0)]
    assert [part["novelty"] for part in valid] == pytest.approx([0.45, 0.4, 0.17, 1 - (2.36 / 3 + 0.96) / 2])


@VARIANTS
def test_a_group_without_a_number_among_its_answers_earns_the_lowest_reward(method: EvolRl) -> None:
    assert method.score(group_of([None, "x", None], embeddings=[A, B, C])).rewards.tolist() == [-1, -1, -1]
    scored = method.score(group_of([None, None], embeddings=[A, B]))
    assert (scored.label, scored.learn) == (None, False)


@VARIANTS
@given(group=any_groups())
def test_every_rollout_of_the_majority_earns_more_than_any_of_the_minority(method: EvolRl, group: Group) -> None:
    scored = method.score(group)
    scores, digits = scored.rewards, [answer is not None and answer.isdigit() for answer in group.answers]
    majority = np.array(digits) & np.array([answer == scored.label for answer in group.answers])
    assert (abs(scores) >= 0.5).all()
    assert (scores[~majority] <= -0.5).all()
    if not (method.variant == "official" and sum(digits) == 1 < len(digits)):  # then it has nothing to compare with
        assert (scores[majority] >= 0.5).all()


def test_a_majority_answer_without_a_digit_has_a_majority_share_of_zero() -> None:
    """The released code votes over all answers, but takes those without a digit for invalid."""
    parts = EvolRl(variant="official").score(group_of(["x", "x", "7"], embeddings=[A, B, C])).parts
    assert parts == {"valid_share": pytest.approx(1 / 3), "majority_share": 0}
