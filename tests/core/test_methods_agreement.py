"""By hand: the methods whose reward is agreement with a label (R-Zero, TTRL, SRT, GRPO, RLOO, pass@n, supervised), and
those whose reward is a share, an entropy, or agreement and a strategy (soft SRT, EMPO, RENT, Poly-EPO, GRPO+DIV)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from reward_groups import GIVEN, VOTED, any_groups, group_of

from core.methods import Method
from core.methods.empo import Empo
from core.methods.poly_epo import GrpoDiv, PolyEpo
from core.methods.rent import Rent
from core.methods.srt import SoftSrt
from core.types import Group

Answers = list[str | None]


def with_methods(methods: list[Method]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("method", methods, ids=lambda method: method.type)


@with_methods(VOTED)
@pytest.mark.parametrize(
    ("answers", "label", "rewards"),
    [
        (["7", "8", "7.0", None, "7", "9"], "7", [1, 0, 1, 0, 1, 0]),
        (["9", "9", "3", "3"], "3", [0, 0, 1, 1]),  # a tie goes to the smallest key and not to the first answer
        (["3", "9", "9", "3"], "3", [1, 0, 0, 1]),
        (["4", "4", "4"], "4", [1, 1, 1]),
        (["6", "5", "4"], "4", [0, 0, 1]),
        ([None, "4", None], "4", [0, 1, 0]),
        ([None, None], None, [0, 0]),
    ],
)
def test_the_group_s_own_majority_earns_one_whatever_the_question_s_label(
    method: Method, answers: Answers, label: str | None, rewards: list[float]
) -> None:
    scored = method.score(group_of(answers, label="8"))
    assert (scored.rewards.tolist(), scored.label, scored.learn) == (rewards, label, label is not None)


@with_methods(GIVEN)
def test_the_given_label_earns_one_against_any_majority(method: Method) -> None:
    for answers, rewards in ((["7", "7", "8.0", None], [0, 0, 1, 0]), ([None, "1"], [0, 0])):
        scored = method.score(group_of(answers, label="8"))
        assert (scored.rewards.tolist(), scored.label, scored.learn) == (rewards, "8", True)


@with_methods(VOTED + GIVEN)
@given(group=any_groups())
def test_rewards_are_zero_or_one_and_as_many_are_one_as_agree(method: Method, group: Group) -> None:
    rewards = method.score(group).rewards
    assert set(rewards) <= {0, 1}
    assert rewards.sum() == (group.vote.votes if method.labels == "online" else sum(group.agrees or ()))


@pytest.mark.parametrize(
    ("method", "answers", "signals", "label", "learn", "rewards"),
    [
        # SRT's released code (self_learning.py): shares of the votes; a rollout without an answer has none.
        (SoftSrt(), ["7", "7.0", "8", None], {}, "7", True, [2 / 3, 2 / 3, 1 / 3, 0]),
        (SoftSrt(), [None, None], {}, None, False, [0, 0]),
        # EMPO's released code (rewards.py): shares of all rollouts, where at least two agree.
        (Empo(), ["7", "7.0", "8", "8", None, "7"], {}, "7", True, [1 / 2, 1 / 2, 1 / 3, 1 / 3, 0, 1 / 2]),
        (Empo(), ["1", "2", "3"], {}, None, False, [1 / 3] * 3),
        (Empo(), ["1", "2", None], {}, None, False, [1 / 3, 1 / 3, 0]),
        (Empo(), [None, None, None], {}, None, False, [0, 0, 0]),
        (Empo(), ["4", "4"], {}, "4", True, [1, 1]),
        (Empo(), ["4"], {}, "4", True, [1]),
        (Rent(), ["7", "8", None], {"mean_entropy": [0.5, 0.1, 0.3]}, None, True, [-0.5, -0.1, -0.3]),
        (PolyEpo(), ["7", "7", "8", "8"], {"clusters": (1, 2, 3, 100)}, "7", True, [1, 1, 0, 0]),
        # N = 4: a cluster of two earns (4/2 - 1)/3 = 1/3, one of one (4/1 - 1)/3 = 1, the degenerate one nothing, each
        # times lambda = 0.5.
        (GrpoDiv(), ["7", "8", "8", "7"], {"clusters": (1, 1, 2, 100)}, "7", True, [1 + 1 / 6, 1 / 6, 1 / 2, 1]),
        (GrpoDiv(), ["7", "7", "8"], {"clusters": (1, 1, 1)}, "7", True, [1, 1, 0]),
        (GrpoDiv(), ["7", "7", "8"], {"clusters": (3, 1, 2)}, "7", True, [1.5, 1.5, 0.5]),
        (GrpoDiv(), ["7"], {"clusters": (1,)}, "7", True, [1]),
    ],
)
def test_rewards_of_other_kinds(
    method: Method, answers: Answers, signals: dict[str, Any], label: str | None, learn: bool, rewards: list[float]
) -> None:
    scored = method.score(group_of(answers, label="7", **signals))
    assert scored.rewards == pytest.approx(rewards)
    assert (scored.label, scored.learn) == (label, learn)


def test_empo_measures_the_entropy_of_the_answers_and_rent_s_advantages_are_zscores() -> None:
    # Shares 3/6, 2/6, and 1/6 for the rollout without an answer.
    entropy = -(math.log(1 / 2) / 2 + math.log(1 / 3) / 3 + math.log(1 / 6) / 6)
    parts = Empo().score(group_of(["7", "7.0", "8", "8", None, "7"])).parts
    assert parts == {"semantic_entropy": pytest.approx(entropy)}
    rewards = Rent().score(group_of(["7", "8", None], mean_entropy=[0.5, 0.1, 0.3])).rewards
    assert Rent().advantages(rewards) == pytest.approx([-1, 1, 0], abs=1e-4)  # mean -0.3, unbiased deviation 0.2
