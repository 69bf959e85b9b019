"""A rollout whose answer the grader could not compare with the label is left out, whatever the method is."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reward_groups import GIVEN, VOTED, any_groups, group_of

from core.grading.grader import Grader
from core.methods import Method
from core.methods.base import Objective
from core.methods.empo import Empo
from core.methods.evol_rl import EvolRl
from core.methods.poly_epo import Grpo, GrpoDiv, PassAtN, PolyEpo
from core.methods.rent import Rent
from core.methods.rzero import RZero
from core.methods.scrl import Scrl
from core.methods.srt import Rloo, SoftSrt
from core.rollouts.groups import make_groups
from core.rollouts.scoring import learned_from, outcome, score_group
from core.types import Group, Scored

COMPARED: list[Method] = [
    *GIVEN,
    *(PolyEpo(set_size=2), PassAtN(set_size=2), GrpoDiv()),
    *(EvolRl(labels="offline"), EvolRl(labels="offline", variant="official")),
]
by_method = pytest.mark.parametrize("method", COMPARED, ids=lambda m: f"{m.type} {getattr(m, 'variant', '')}")


def with_undecided(group: Group, *undecided: int) -> Group:
    """The group, if the grader could not compare these rollouts' answers with the label."""
    assert group.agrees is not None
    return replace(group, agrees=tuple(None if i in undecided else agreed for i, agreed in enumerate(group.agrees)))


@pytest.mark.parametrize(
    ("method", "rewards", "advantages"),
    [
        # The rollouts are right, undecided, wrong, wrong. Of 1, 0, 0 the mean is 1/3, the variances 1/3 and 2/9.
        (RZero(), [1, 0, 0, 0], [2 / 3 * sqrt(3), 0, -1 / 3 * sqrt(3), -1 / 3 * sqrt(3)]),
        (Grpo(advantage="population_zscore"), [1, 0, 0, 0], [sqrt(2), 0, -sqrt(1 / 2), -sqrt(1 / 2)]),
        (Grpo(), [1, 0, 0, 0], [2 / 3, 0, -1 / 3, -1 / 3]),
        (Rloo(), [1, 0, 0, 0], [1, 0, -1 / 2, -1 / 2]),
        # As in test_methods_sets.py, for rewards 1, 0, 0 and clusters 1, 1, 2.
        (PassAtN(set_size=2), [1, 0, 0, 0], [1 / 3, 0, -1 / 6, -1 / 6]),
        (PolyEpo(set_size=2), [1, 0, 0, 0], [1 / 8, 0, -1 / 8, 0]),
        # The undecided one is in the other's cluster of two, but does not count in it: N = 3, bonuses (3/2 - 1)/2 for
        # cluster 1 and (3/1 - 1)/2 for cluster 2, each times 0.5. Their mean is (1.125 + 0.125 + 0.5)/3.
        (GrpoDiv(), [1.125, 0, 0.125, 0.5], [1.625 / 3, 0, -1.375 / 3, -0.25 / 3]),
    ],
    ids=lambda value: f"{value.type} {value.advantage}" if isinstance(value, Method) else "",
)
def test_by_hand(method: Method, rewards: list[float], advantages: list[float]) -> None:
    group = with_undecided(group_of(["7", "6", "8", "9"], "7", clusters=(1, 2, 1, 2)), 1)
    result = outcome(group, method)
    assert result.scored.undecided == (1,)
    assert result.scored.rewards == pytest.approx(rewards)
    assert result.advantages == pytest.approx(advantages, abs=1e-5)
    assert result.scored.rollout_parts[1] == {"undecided": 1.0}


def test_a_pair_that_the_grader_cannot_decide_has_no_reward(grader: Grader) -> None:
    """`yes!` may be a factorial. Among four rollouts of which two are right, it would move the mean from 2/3 to 1/2."""
    [group] = make_groups([["yes", "yes!", "no", "yes"]], ["yes"], grader)
    assert group.agrees == (True, None, False, True)
    assert outcome(group, Grpo()).advantages == pytest.approx([1 / 3, 0, -2 / 3, 1 / 3])


@st.composite
def undecided_groups(draw: st.DrawFn) -> tuple[Group, list[int]]:
    group = draw(any_groups())
    indices = st.integers(0, len(group.answers) - 1)
    undecided = draw(st.sets(indices, min_size=1))
    return with_undecided(group, *undecided), [i for i in range(len(group.answers)) if i not in undecided]


@by_method
@given(drawn=undecided_groups())
def test_the_others_are_scored_as_if_the_undecided_ones_had_not_been_sampled(
    method: Method, drawn: tuple[Group, list[int]]
) -> None:
    group, judged = drawn
    result = outcome(group, method)
    left_out = [i for i in range(len(group.answers)) if i not in judged]
    assert result.scored.undecided == tuple(left_out)
    assert not result.scored.rewards[left_out].any()
    assert not result.advantages[left_out].any()
    size: int = getattr(method, "set_size", 2)
    if len(judged) < max(2, size):
        assert not result.scored.learn
        assert not result.advantages.any()
        return
    assert group.label is not None
    assert group.mean_entropy is not None
    assert group.embeddings is not None
    assert group.clusters is not None
    others = group_of(
        [group.answers[i] for i in judged],
        group.label,
        mean_entropy=group.mean_entropy[judged],
        embeddings=group.embeddings[judged],
        clusters=tuple(group.clusters[i] for i in judged),
    )
    alone = outcome(others, method)
    np.testing.assert_array_equal(result.scored.rewards[judged], alone.scored.rewards)
    np.testing.assert_array_equal(result.advantages[judged], alone.advantages)
    assert (result.scored.learn, result.scored.label) == (alone.scored.learn, alone.scored.label)
    assert result.scored.parts == alone.scored.parts
    parts = alone.scored.rollout_parts or ({},) * len(judged)
    assert [result.scored.rollout_parts[i] for i in judged] == [*parts]


@pytest.mark.parametrize("method", [*VOTED, SoftSrt(), Empo(), Rent(), Scrl(), EvolRl()], ids=lambda m: m.type)
@given(drawn=undecided_groups())
def test_a_method_that_makes_its_labels_or_has_none_leaves_out_nobody(
    method: Method, drawn: tuple[Group, list[int]]
) -> None:
    """The question may have come with a label, but the method does not compare with it."""
    group, _ = drawn
    scored, decided = (score_group(g, method) for g in (group, replace(group, label=None, agrees=None)))
    assert scored.undecided == ()
    np.testing.assert_array_equal(scored.rewards, decided.rewards)
    assert (scored.learn, scored.label) == (decided.learn, decided.label)


@by_method
def test_without_an_undecided_rollout_the_scores_are_the_method_s_own(method: Method) -> None:
    group = group_of(["7", "8", None], "7", embeddings=[[1, 0], [0, 1], [1, 1]], clusters=(1, 2, 100))
    through, own = score_group(group, method), method.score(group)
    np.testing.assert_array_equal(through.rewards, own.rewards)
    assert (through.undecided, through.rollout_parts) == ((), own.rollout_parts)


@by_method
def test_a_method_that_is_handed_an_undecided_rollout_refuses_it(method: Method) -> None:
    group = group_of(["7", "8"], "7", embeddings=[[1, 0], [0, 1]], clusters=(1, 2))
    with pytest.raises(ValueError, match=r"^agrees: "):
        method.score(with_undecided(group, 1))


@pytest.mark.parametrize(
    ("objective", "members", "undecided", "learn", "expected"),
    [
        (RZero(), range(4), (), True, [0, 1, 2, 3]),
        (RZero(), range(4), (2,), True, [0, 1, 3]),
        (RZero(), range(2), (2, 3), True, [0, 1]),  # those that are not trained on were not judged
        (RZero(), range(2), (1,), True, []),  # one alone has nothing to be compared with
        (RZero(), [3, 1, 0], (1,), True, [3, 0]),
        (RZero(), range(1), (), True, [0]),  # a job that trains on one rollout is as it was
        (RZero(), range(1), (1,), True, [0]),
        (RZero(), range(4), (2,), False, []),
        (PassAtN(set_size=3), range(4), (2,), True, [0, 1, 3]),
        (PassAtN(set_size=3), range(4), (2, 3), True, []),
    ],
)
def test_who_is_learned_from(
    objective: Objective, members: Any, undecided: tuple[int, ...], learn: bool, expected: list[int]
) -> None:
    assert learned_from(Scored("7", np.zeros(4), learn, undecided=undecided), members, objective) == expected
