"""EVOL-RL by hand, from sections 2.2, A.2 and A.3 of the paper."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reward_groups import any_groups, group_of, permuted

from core.methods.evol_rl import EvolRl
from core.types import Group

PAPER, OFFICIAL = EvolRl(), EvolRl(variant="official")
VARIANTS = pytest.mark.parametrize("method", [PAPER, OFFICIAL], ids=lambda method: method.variant)

# Unit vectors: a.b = 0, a.c = 0.6, a.d = 0.8, b.c = 0.8, b.d = 0.6, c.d = 0.96.
A, B, C, D = [1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.8, 0.6]


def rewards(
    answers: list[str | None], embeddings: list[list[float]], method: EvolRl, label: str | None = None
) -> list[float]:
    return method.score(group_of(answers, label, embeddings=embeddings)).rewards.tolist()


@VARIANTS
def test_the_bands_of_majority_and_minority_by_hand(method: EvolRl) -> None:
    # The majority, with the answer 7, is a, b and c; the minority is d; the fifth rollout has no answer.
    # s: a (0 + 0.6)/2 = 0.3, b (0 + 0.8)/2 = 0.4, c (0.6 + 0.8)/2 = 0.7. m: a 0.8 (d), b 0.8 (c), c 0.96 (d).
    # u = 1 - (s + m)/2: a 0.45, b 0.4, c 0.17. Min-max: 1, 0.23/0.28, 0. Bands: 0.5 + 0.5 v.
    # d is alone: by the formulas it is at the bottom of its band, in the released code at its top.
    scores = rewards(["7", "7", "7", "3", None], [A, B, C, D, [9.0, 9.0]], method)
    assert scores == pytest.approx([1, 0.5 + 0.5 * 0.23 / 0.28, 0.5, -1 if method is PAPER else -0.5, -1], abs=1e-7)


@VARIANTS
def test_the_parts_of_a_reward_by_hand(method: EvolRl) -> None:
    """The novelties are those of the first test; d is alone, so s is its mean to all others, (0.8 + 0.6 + 0.96)/3."""
    scored = method.score(group_of(["7", "7", "7", "3", None], embeddings=[A, B, C, D, [9.0, 9.0]]))
    *valid, invalid = scored.rollout_parts
    assert invalid == {"valid": 0}
    assert [(part["valid"], part["majority"]) for part in valid] == [(1, 1), (1, 1), (1, 1), (1, 0)]
    assert [part["novelty"] for part in valid] == pytest.approx([0.45, 0.4, 0.17, 1 - (2.36 / 3 + 0.96) / 2])


def test_the_length_of_an_embedding_does_not_matter() -> None:
    doubled = [[2 * x for x in A], B, C, D]
    assert rewards(["7", "7", "7", "3"], doubled, PAPER) == pytest.approx(
        rewards(["7", "7", "7", "3"], [A, B, C, D], PAPER)
    )


def test_alpha_weighs_the_mean_similarity_to_the_side_against_that_to_the_nearest_rollout() -> None:
    # alpha 1: u = 1 - s: 0.7, 0.6, 0.3, so b has 0.3/0.4. alpha 0: u = 1 - m: 0.2, 0.2, 0.04, so b has 1.
    embeddings, answers = [A, B, C, D], ["7", "7", "7", "3"]
    assert rewards(answers, embeddings, EvolRl(alpha=1))[1] == pytest.approx(0.5 + 0.5 * 0.75)
    assert rewards(answers, embeddings, EvolRl(alpha=0))[1] == pytest.approx(1)


def test_the_minority_is_spread_over_its_own_band() -> None:
    # The minority is a, b and c, with three different answers; the novelties are those of the first test.
    scores = rewards(["1", "2", "3", "7", "7"], [A, B, C, D, D], PAPER)
    # m: a 0.8, b 0.8, c 0.96; s as there; v = 1, 0.23/0.28, 0. The two 7s are equal: the bottom of their band.
    assert scores == pytest.approx([-0.5, -1 + 0.5 * 0.23 / 0.28, -1, 0.5, 0.5], abs=1e-7)


@pytest.mark.parametrize(
    ("method", "expected"),
    [(PAPER, [0.5, 0.5, -1, -1]), (OFFICIAL, [0.75, 0.75, -0.75, -0.75])],
    ids=["paper", "official"],
)
def test_equally_novel_rollouts_of_a_side_get_the_same_reward(method: EvolRl, expected: list[float]) -> None:
    # 7 and 3 tie, and the smaller key is the majority. The two rollouts of a side are equal, up to rounding.
    embeddings = [[0.1, 0.2, 0.3], [0.1, 0.2, 0.3], [0.3, 0.1, 0.7], [0.3, 0.1, 0.7]]
    assert rewards(["3", "3", "7", "7"], embeddings, method) == pytest.approx(expected)


@pytest.mark.parametrize(("method", "lone"), [(PAPER, 0.5), (OFFICIAL, 1.0)], ids=["paper", "official"])
def test_where_all_answers_differ_the_smallest_is_the_majority(method: EvolRl, lone: float) -> None:
    # Each answer has one vote: the smallest key is the majority, alone; its mean similarity is to all others.
    scores = rewards(["4", "5", "6"], [A, B, C], method)
    assert scores[0] == pytest.approx(lone)
    # b and c are the minority: s is 0.8 for both and m is 0.8 for both, so they are equally novel.
    assert scores[1:] == pytest.approx([-1, -1] if method is PAPER else [-0.75, -0.75])


def test_where_all_agree_rewards_are_spread_over_the_majority_s_band() -> None:
    scores = rewards(["7", "7", "7"], [A, B, C], PAPER)
    # s as above; m: a 0.6, b 0.8, c 0.8; u: 0.55, 0.4, 0.25.
    assert scores == pytest.approx([1, 0.75, 0.5], abs=1e-7)


@VARIANTS
def test_a_group_without_a_number_among_its_answers_earns_the_lowest_reward(method: EvolRl) -> None:
    assert rewards([None, "x", None], [A, B, C], method) == [-1, -1, -1]
    scored = method.score(group_of([None, None], embeddings=[A, B]))
    assert (scored.label, scored.learn) == (None, False)


def test_only_numbers_vote_in_the_paper_s_variant() -> None:
    # x has three votes, 7 has two. By section A.2 x is invalid. In the released code x wins, so 7 is the minority.
    answers, embeddings = ["x", "x", "x", "7", "7"], [A, A, A, A, B]
    paper, official = (method.score(group_of(answers, embeddings=embeddings)) for method in (PAPER, OFFICIAL))
    assert (paper.label, paper.rewards.tolist()) == ("7", [-1, -1, -1, 0.5, 0.5])
    assert (official.label, official.rewards.tolist()) == ("x", [-1, -1, -1, -0.75, -0.75])


@pytest.mark.parametrize(("method", "expected"), [(PAPER, 0.5), (OFFICIAL, -1.0)], ids=["paper", "official"])
def test_the_reward_of_a_single_valid_answer_among_invalid_ones(method: EvolRl, expected: float) -> None:
    # The released code has no other rollout to compare it with and leaves its reward at -1.
    assert rewards([None, "7"], [A, B], method) == [-1, expected]


def test_opposite_vectors_are_more_novel_unless_cosines_are_clipped() -> None:
    # a and -a have the similarity -1. The first two have s = (-1 + 0)/2 and m = 0, the third has s = 0 and m = 0.
    # u: 1.25, 1.25, 1.
    embeddings = [A, [-1.0, 0.0], B]
    assert rewards(["7", "7", "7"], embeddings, PAPER) == pytest.approx([1, 1, 0.5], abs=1e-7)
    assert rewards(["7", "7", "7"], embeddings, OFFICIAL) == pytest.approx([0.75, 0.75, 0.75])


def test_with_given_labels_the_right_answers_are_the_majority() -> None:
    scores = rewards(["3", "7", "7", "7"], [A, B, B, B], EvolRl(labels="offline"), label="3")
    assert scores == pytest.approx([0.5, -1, -1, -1])


@VARIANTS
@given(group=any_groups(), random=st.randoms(use_true_random=False))
def test_rewards_are_in_their_side_s_band_and_follow_a_permutation(
    method: EvolRl, group: Group, random: Random
) -> None:
    order = list(range(len(group.answers)))
    random.shuffle(order)
    scored = method.score(group)
    scores = scored.rewards
    assert (((scores >= 0.5) & (scores <= 1)) | ((scores >= -1) & (scores <= -0.5))).all()
    majority = np.array(
        [answer == scored.label and answer is not None and answer.isdigit() for answer in group.answers]
    )
    lone = method is OFFICIAL and sum(a is not None and a.isdigit() for a in group.answers) == 1 < len(group.answers)
    if not lone:
        assert (scores[majority] >= 0.5).all()  # every rollout of the majority earns more than any of the minority
    assert (scores[~majority] <= -0.5).all()
    again = method.score(permuted(group, order))
    assert again.rewards == pytest.approx(scores[order], abs=1e-6)


def test_missing_embeddings_are_named_in_the_error() -> None:
    assert PAPER.needs == {"embeddings"}
    with pytest.raises(ValueError, match="embeddings: evol_rl needs one per rollout: expected 2, got "):
        PAPER.score(group_of(["1", "2"]))


def test_a_majority_answer_without_a_digit_has_a_majority_share_of_zero() -> None:
    """The released code votes over all answers, but takes those without a digit for invalid."""
    parts = OFFICIAL.score(group_of(["x", "x", "7"], embeddings=[A, B, C])).parts
    assert parts == {"valid_share": pytest.approx(1 / 3), "majority_share": 0}
