"""SCRL by hand, from equations 4 to 9 and algorithm 1 of the paper."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from reward_groups import any_groups, group_of

from core.methods.scrl import Scrl
from core.types import Group, Scored

Answers = list[str | None]

# N = 8. Shares: 5 has 4/8, 6 has 2/8, 7 has 1/8; one without an answer.
ANSWERS: Answers = ["5", "5", "5", "5", "6", "6", "7", None]
# Mean entropies: 5 has (0.2 + 0.2 + 0.4 + 0.4)/4 = 0.3, 6 has 0.6, 7 has 1.0, no answer has 0.6; all have 4.0/8 = 0.5.
ENTROPIES = [0.2, 0.2, 0.4, 0.4, 0.5, 0.7, 1.0, 0.6]
SURE_6 = [0.2, 0.2, 0.4, 0.4, 0.1, 0.1, 1.0, 0.6]  # 6 has 0.1, below the mean of all, 3.0/8 = 0.375
EVEN = [0.5] * 8
ONE_TWICE: Answers = ["1", "1", "2", "3", "4", "5", "6", "7"]  # 2/8 is less than tau_pos; 1/8 is not below tau_neg
DIFFERENT: Answers = ["1", "2", "3", "4"]
RARE: dict[str, Any] = {"tau_neg": 0.3}
HARD: dict[str, Any] = {"dynamic_reward": False}
TIED: Answers = ["6", "6", "5", "5"]


def score(answers: Answers, entropies: list[float], **settings: Any) -> Scored:
    return Scrl(**settings).score(group_of(answers, mean_entropy=entropies))


@pytest.mark.parametrize(
    ("settings", "answers", "entropies", "label", "negatives", "rewards"),
    [
        # 5 is positive: its share 1/2 >= 0.375, its lead 1/4 > 0.125. 7 is not negative: 1/8 is not below tau_neg.
        # 5: 0.5 - 0.1 (0.3 - 0.5) = 0.52; 6: -0.1 * 0.1; 7: -0.1 * 0.5; no answer: no more than 7, the worst answer.
        ({}, ANSWERS, ENTROPIES, "5", "", [*[0.52] * 4, -0.01, -0.01, -0.05, -0.05]),
        ({"tau_neg": 0}, ANSWERS, ENTROPIES, "5", "", [*[0.52] * 4, -0.01, -0.01, -0.05, -0.05]),
        ({"tau_neg": 0, "entropy_gate": False}, ANSWERS, ENTROPIES, "5", "", [*[0.52] * 4, -0.01, -0.01, -0.05, -0.05]),
        # In the released code no answer costs one.
        ({"variant": "official"}, ANSWERS, ENTROPIES, "5", "", [*[0.52] * 4, -0.01, -0.01, -0.05, -1]),
        # 6 (share 1/4, entropy 0.6 >= 0.5) earns 0.25 - 0.3 - 0.01, 7 earns 0.125 - 0.3 - 0.05.
        (RARE, ANSWERS, ENTROPIES, "5", "67", [*[0.52] * 4, -0.06, -0.06, -0.225, -0.225]),
        (RARE | {"entropy_weight": 0}, ANSWERS, ENTROPIES, "5", "67", [*[0.5] * 4, *[-0.05] * 2, *[-0.175] * 2]),
        # An entropy equal to the mean is enough.
        (RARE, ANSWERS, EVEN, "5", "67", [*[0.5] * 4, -0.05, -0.05, -0.175, -0.175]),
        # 6 is rare but sure: -0.1 (0.1 - 0.375). 5: 0.5 - 0.1 (0.3 - 0.375); 7: 1/8 - 0.3 - 0.1 (1.0 - 0.375).
        (RARE, ANSWERS, SURE_6, "5", "7", [*[0.5075] * 4, 0.0275, 0.0275, -0.2375, -0.2375]),
        # Without the gate it is negative, however sure: 1/4 - 0.3 - 0.1 (0.1 - 0.375).
        (RARE | {"entropy_gate": False}, ANSWERS, SURE_6, "5", "67", [*[0.5075] * 4, *[-0.0225] * 2, *[-0.2375] * 2]),
        # Hard rewards.
        (HARD, ANSWERS, ENTROPIES, "5", "", [1, 1, 1, 1, 0, 0, 0, 0]),
        (HARD | RARE, ANSWERS, ENTROPIES, "5", "67", [1, 1, 1, 1, -1, -1, -1, -1]),
        (HARD | RARE | {"variant": "official"}, ANSWERS, ENTROPIES, "5", "67", [*[1] * 4, *[-1] * 4]),
        # All agree (H(a) = H), all differ, nobody answers. 3 and 4 are rare and unsure: 1/4 - 1/2 - 0.1 (H(a) - 0.25).
        ({}, ["4"] * 4, [0.1, 0.2, 0.3, 0.4], "4", "", [1] * 4),
        ({"tau_neg": 0.5}, DIFFERENT, [0.1, 0.2, 0.3, 0.4], None, "34", [0.015, 0.005, -0.255, -0.265]),
        ({}, [None, None], [0.3, 0.5], None, "", [0, 0]),
        # The positive label is never negative.
        ({"tau_neg": 1.0}, ["4", "4"], [1.0, 1.0], "4", "", [1, 1]),
        # A rollout without an answer never gains from its entropy. H = 1.6/4 = 0.4: 0.75 - 0.1 (0.5 - 0.4), and
        # -0.1 (0.1 - 0.4) = 0.03 is cut off; H = 2.4/4 = 0.6: 0.75 - 0.1 (0.5 - 0.6), and -0.1 (0.9 - 0.6).
        ({}, ["5", "5", "5", None], [0.5, 0.5, 0.5, 0.1], "5", "", [0.74, 0.74, 0.74, 0]),
        ({}, ["5", "5", "5", None], [0.5, 0.5, 0.5, 0.9], "5", "", [0.76, 0.76, 0.76, -0.03]),
        ({"variant": "official"}, ["5", "5", "5", None], [0.5, 0.5, 0.5, 0.1], "5", "", [0.74, 0.74, 0.74, -1]),
        # Without selection the majority always is the positive label, also where its share 1/4 is below tau_neg = 1/2.
        ({}, ONE_TWICE, EVEN, None, "", [0] * 8),
        ({"selective_positives": False}, ONE_TWICE, EVEN, "1", "", [0.25, 0.25, 0, 0, 0, 0, 0, 0]),
        ({"selective_positives": False, "tau_neg": 0.5}, DIFFERENT, EVEN[:4], "1", "234", [0.25, -0.25, -0.25, -0.25]),
        ({"selective_positives": False}, [None, None], [0.5, 0.5], None, "", [0, 0]),
        # Thresholds of zero give no label to a tie; a majority vote does.
        ({"tau_pos": 0, "tau_marg": 0}, TIED, EVEN[:4], None, "", [0] * 4),
        ({"tau_pos": 0, "tau_marg": 0}, ["6", "6", "5", None], EVEN[:4], "6", "", [0.5, 0.5, 0, 0]),
        ({"selective_positives": False}, TIED, EVEN[:4], "5", "", [0, 0, 0.5, 0.5]),
    ],
)
def test_by_hand(
    settings: dict[str, Any],
    answers: Answers,
    entropies: list[float],
    label: str | None,
    negatives: str,
    rewards: list[float],
) -> None:
    scored = score(answers, entropies, **settings)
    assert scored.rewards == pytest.approx(rewards, abs=1e-12)
    assert (scored.label, scored.negatives) == (label, tuple(negatives))
    assert scored.parts == {
        "positive_share": answers.count(label) / len(answers) if label else 0,
        "negative_share": sum(answers.count(negative) for negative in negatives) / len(answers),
        "abstained": label is None,
    }


@pytest.mark.parametrize(
    ("votes", "tau_marg", "firm"),
    [
        ((6, 4), 0.12, True),  # 6/16 = 0.375 is enough; the lead is 2/16 = 0.125
        ((6, 4), 0.125, False),  # a lead of exactly the margin is not
        ((6, 3), 0.125, True),
        ((5, 1), 0.125, False),  # 5/16 < 0.375
        ((8, 8), 0.125, False),
        ((16,), 0.125, True),
    ],
)
def test_a_label_needs_a_share_and_a_lead_above_their_thresholds(
    votes: tuple[int, ...], tau_marg: float, firm: bool
) -> None:
    answers: Answers = [str(i) for i, count in enumerate(votes) for _ in range(count)]
    scored = score([*answers, *[None] * (16 - len(answers))], [0.5] * 16, tau_marg=tau_marg)
    assert (scored.label is not None) == firm


def test_a_lead_of_the_margin_is_not_enough_although_it_is_rounded() -> None:
    # In binary 4/10 - 3/10 is 0.10000000000000003.
    tenths: Answers = ["1"] * 4 + ["2"] * 3 + [None] * 3
    assert score(tenths, [0.5] * 10, tau_marg=0.1).label is None


@pytest.mark.parametrize(
    ("answers", "entropies", "settings"),
    [
        ([None, None, None, "7"], [0.3, 0.31, 0.32, 0.33], {}),  # the answer is less sure than the rest
        ([None, None, None, "7"], [0.3, 0.31, 0.32, 0.33], {"variant": "official"}),
        ([None] * 7 + ["7"], [0.1] * 7 + [2.0], {"tau_neg": 0.5}),  # the only answer is negative
        ([None] * 7 + ["7"], [0.1] * 7 + [2.0], {"tau_neg": 0.5, "dynamic_reward": False}),
        ([None, None, "7", "8"], [2.0, 2.0, 0.1, 0.2], {}),
        ([None] * 4, [0.3, 0.31, 0.32, 0.33], {}),
    ],
)
def test_no_answer_never_has_a_positive_advantage(
    answers: Answers, entropies: list[float], settings: dict[str, Any]
) -> None:
    assert gains_without_an_answer(group_of(answers, mean_entropy=entropies), Scrl(**settings)) == []


@given(group=any_groups())
def test_no_answer_never_gains(group: Group) -> None:
    assert gains_without_an_answer(group, Scrl()) == []


def gains_without_an_answer(group: Group, method: Scrl) -> list[tuple[float, float]]:
    rewards = method.score(group).rewards
    pairs = zip(group.answers, rewards.tolist(), method.advantages(rewards).tolist(), strict=True)
    return [(r, advantage) for answer, r, advantage in pairs if answer is None and max(r, advantage) > 0]
