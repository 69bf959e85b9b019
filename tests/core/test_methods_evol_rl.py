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
    answers: list[str | None], rows: list[list[float]], method: EvolRl, label: str | None = None
) -> list[float]:
    return method.score(group_of(answers, label, embeddings=rows)).rewards.tolist()


@VARIANTS
def test_two_bands_by_hand(method: EvolRl) -> None:
    # The majority 7 is a, b, c; the minority d; the fifth has no answer.
    # s: a (0 + 0.6)/2 = 0.3, b (0 + 0.8)/2 = 0.4, c (0.6 + 0.8)/2 = 0.7. m: a 0.8 (d), b 0.8 (c), c 0.96 (d).
    # u = 1 - (s + m)/2: a 0.45, b 0.4, c 0.17. Min-max: 1, 0.23/0.28, 0. Bands: 0.5 + 0.5 v.
    # d is alone: the bottom of its band by the formulas, its top in the released code.
    found = rewards(["7", "7", "7", "3", None], [A, B, C, D, [9.0, 9.0]], method)
    assert found == pytest.approx([1, 0.5 + 0.5 * 0.23 / 0.28, 0.5, -1 if method is PAPER else -0.5, -1], abs=1e-7)


def test_the_length_of_an_embedding_does_not_matter() -> None:
    doubled = [[2 * x for x in A], B, C, D]
    assert rewards(["7", "7", "7", "3"], doubled, PAPER) == pytest.approx(
        rewards(["7", "7", "7", "3"], [A, B, C, D], PAPER)
    )


def test_alpha_weighs_the_side_against_the_nearest() -> None:
    # alpha 1: u = 1 - s: 0.7, 0.6, 0.3, so b has 0.3/0.4. alpha 0: u = 1 - m: 0.2, 0.2, 0.04, so b has all.
    rows, answers = [A, B, C, D], ["7", "7", "7", "3"]
    assert rewards(answers, rows, EvolRl(alpha=1))[1] == pytest.approx(0.5 + 0.5 * 0.75)
    assert rewards(answers, rows, EvolRl(alpha=0))[1] == pytest.approx(1)


def test_the_minority_is_spread_over_its_own_band() -> None:
    # The minority is a, b, c, each with an answer of its own; the novelties are those above.
    found = rewards(["1", "2", "3", "7", "7"], [A, B, C, D, D], PAPER)
    # m: a 0.8, b 0.8, c 0.96; s as above; v = 1, 0.23/0.28, 0. The two 7s are each other's equal: their band's bottom.
    assert found == pytest.approx([-0.5, -1 + 0.5 * 0.23 / 0.28, -1, 0.5, 0.5], abs=1e-7)


@pytest.mark.parametrize(
    ("method", "expected"),
    [(PAPER, [0.5, 0.5, -1, -1]), (OFFICIAL, [0.75, 0.75, -0.75, -0.75])],
    ids=["paper", "official"],
)
def test_sides_of_equals(method: EvolRl, expected: list[float]) -> None:
    # 7 and 3 tie, the smaller key leads. Each side's two are each other's equals, up to rounding.
    rows = [[0.1, 0.2, 0.3], [0.1, 0.2, 0.3], [0.3, 0.1, 0.7], [0.3, 0.1, 0.7]]
    assert rewards(["3", "3", "7", "7"], rows, method) == pytest.approx(expected)


@pytest.mark.parametrize(("method", "lone"), [(PAPER, 0.5), (OFFICIAL, 1.0)], ids=["paper", "official"])
def test_all_differ(method: EvolRl, lone: float) -> None:
    # One vote each: the smallest key is the majority, alone; its mean similarity is over all others.
    found = rewards(["4", "5", "6"], [A, B, C], method)
    assert found[0] == pytest.approx(lone)
    # b and c are the minority: s is 0.8 for both; m 0.8 for both: equals.
    assert found[1:] == pytest.approx([-1, -1] if method is PAPER else [-0.75, -0.75])


def test_all_agree() -> None:
    found = rewards(["7", "7", "7"], [A, B, C], PAPER)
    # s as above; m: a 0.6, b 0.8, c 0.8; u: 0.55, 0.4, 0.25.
    assert found == pytest.approx([1, 0.75, 0.5], abs=1e-7)


@VARIANTS
def test_nobody_gives_a_number(method: EvolRl) -> None:
    assert rewards([None, "x", None], [A, B, C], method) == [-1, -1, -1]
    scored = method.score(group_of([None, None], embeddings=[A, B]))
    assert (scored.label, scored.learn) == (None, False)


def test_only_a_number_may_vote_where_the_paper_has_its_way() -> None:
    # x has three votes, 7 two. A.2: x is invalid. The released code lets it win, so that 7 is the minority.
    answers, rows = ["x", "x", "x", "7", "7"], [A, A, A, A, B]
    paper, official = (method.score(group_of(answers, embeddings=rows)) for method in (PAPER, OFFICIAL))
    assert (paper.label, paper.rewards.tolist()) == ("7", [-1, -1, -1, 0.5, 0.5])
    assert (official.label, official.rewards.tolist()) == ("x", [-1, -1, -1, -0.75, -0.75])


@pytest.mark.parametrize(("method", "expected"), [(PAPER, 0.5), (OFFICIAL, -1.0)], ids=["paper", "official"])
def test_a_single_valid_one_among_invalid_ones(method: EvolRl, expected: float) -> None:
    # The released code has nothing to compare it with and leaves it at -1.
    assert rewards([None, "7"], [A, B], method) == [-1, expected]


def test_opposite_vectors_are_more_novel_unless_cosines_are_clipped() -> None:
    # a and -a: similarity -1. s of the first two: (-1 + 0)/2; m 0; of the third 0 and 0. u: 1.25, 1.25, 1.
    rows = [A, [-1.0, 0.0], B]
    assert rewards(["7", "7", "7"], rows, PAPER) == pytest.approx([1, 1, 0.5], abs=1e-7)
    assert rewards(["7", "7", "7"], rows, OFFICIAL) == pytest.approx([0.75, 0.75, 0.75])


def test_with_given_labels_the_right_ones_are_the_majority() -> None:
    found = rewards(["3", "7", "7", "7"], [A, B, B, B], EvolRl(labels="offline"), label="3")
    assert found == pytest.approx([0.5, -1, -1, -1])


@VARIANTS
@given(group=any_groups(), random=st.randoms(use_true_random=False))
def test_bands_range_and_permutation(method: EvolRl, group: Group, random: Random) -> None:
    order = list(range(len(group.answers)))
    random.shuffle(order)
    scored = method.score(group)
    found = scored.rewards
    assert (((found >= 0.5) & (found <= 1)) | ((found >= -1) & (found <= -0.5))).all()
    majority = np.array(
        [answer == scored.label and answer is not None and answer.isdigit() for answer in group.answers]
    )
    lone = method is OFFICIAL and sum(a is not None and a.isdigit() for a in group.answers) == 1 < len(group.answers)
    if not lone:
        assert (found[majority] >= 0.5).all()  # any of the majority above any of the minority
    assert (found[~majority] <= -0.5).all()
    again = method.score(permuted(group, order))
    assert again.rewards == pytest.approx(found[order], abs=1e-6)


def test_embeddings_are_asked_for_by_name() -> None:
    assert PAPER.needs == {"embeddings"}
    with pytest.raises(ValueError, match="embeddings: expected one a rollout, 2, for evol_rl"):
        PAPER.score(group_of(["1", "2"]))


def test_of_a_majority_without_a_digit_nobody_is_on_the_labels_side() -> None:
    """The released code votes over all answers and takes those without a digit for invalid."""
    parts = OFFICIAL.score(group_of(["x", "x", "7"], embeddings=[A, B, C])).parts
    assert parts == {"valid_share": pytest.approx(1 / 3), "majority_share": 0}
