"""SCRL by hand, from equations 4 to 9 and algorithm 1 of the paper."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reward_groups import any_groups, group_of, permuted

from core.methods.scrl import Scrl
from core.types import Group, Scored

# N = 8. Shares: 5 has 4/8, 6 has 2/8, 7 has 1/8; one without an answer.
ANSWERS: list[str | None] = ["5", "5", "5", "5", "6", "6", "7", None]
# Mean entropies: 5 has (0.2 + 0.2 + 0.4 + 0.4)/4 = 0.3, 6 has 0.6, 7 has 1.0, no answer has 0.6; all have 4.0/8 = 0.5.
ENTROPIES = [0.2, 0.2, 0.4, 0.4, 0.5, 0.7, 1.0, 0.6]


def score(answers: list[str | None], entropies: list[float], method: Scrl) -> Scored:
    return method.score(group_of(answers, mean_entropy=entropies))


def test_a_firm_majority_by_hand() -> None:
    # 5 is positive: its share 1/2 >= 0.375, its lead 1/4 > 0.125. 7 is not negative: 1/8 is not below tau_neg = 1/8.
    # 5: 0.5 - 0.1 (0.3 - 0.5) = 0.52; 6: -0.1 * 0.1; 7: -0.1 * 0.5; no answer: no more than 7, the worst answer.
    scored = score(ANSWERS, ENTROPIES, Scrl())
    assert scored.label == "5"
    assert scored.rewards == pytest.approx([0.52] * 4 + [-0.01, -0.01, -0.05, -0.05])
    assert scored.parts == {"positive_share": 0.5, "negative_share": 0, "abstained": 0}


def test_a_rare_and_unsure_answer_is_negative_by_hand() -> None:
    # tau_neg 0.3: 6 (share 1/4, entropy 0.6 >= 0.5) earns 0.25 - 0.3 - 0.01, 7 earns 0.125 - 0.3 - 0.05. A rollout
    # without an answer is never negative, but earns no more than the worst answer.
    scored = score(ANSWERS, ENTROPIES, Scrl(tau_neg=0.3))
    assert scored.rewards == pytest.approx([0.52] * 4 + [-0.06, -0.06, -0.225, -0.225])
    assert scored.parts["negative_share"] == 3 / 8
    assert scored.negatives == ("6", "7")


def test_a_rare_but_sure_answer_is_not_negative() -> None:
    # 6 has an entropy of 0.1, so the mean of all is (4.0 - 1.0)/8 = 0.375: its share 1/4 < 0.3, but it is surer than
    # the mean.
    entropies = [0.2, 0.2, 0.4, 0.4, 0.1, 0.1, 1.0, 0.6]
    scored = score(ANSWERS, entropies, Scrl(tau_neg=0.3))
    assert scored.rewards[4] == pytest.approx(-0.1 * (0.1 - 0.375))
    assert scored.negatives == ("7",)


def test_rewards_without_the_entropy_term_depend_on_shares_only() -> None:
    scored = score(ANSWERS, ENTROPIES, Scrl(tau_neg=0.3, entropy_weight=0))
    assert scored.rewards == pytest.approx([0.5] * 4 + [-0.05, -0.05, -0.175, -0.175])


def test_no_answer_costs_one_in_the_released_code() -> None:
    assert score(ANSWERS, ENTROPIES, Scrl(variant="official")).rewards == pytest.approx(
        [0.52] * 4 + [-0.01, -0.01, -0.05, -1]
    )


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
    answers: list[str | None], entropies: list[float], settings: dict[str, Any]
) -> None:
    method = Scrl(**settings)
    advantages = method.advantages(score(answers, entropies, method).rewards)
    assert all(advantage <= 0 for advantage, answer in zip(advantages, answers, strict=True) if answer is None)


@pytest.mark.parametrize(
    ("votes", "firm"),
    [
        ((6, 4), True),  # 6/16 = 0.375 is enough; the lead 2/16 = 0.125 is more than this case's 0.12
        ((6, 3), True),
        ((5, 1), False),  # 5/16 < 0.375
        ((8, 8), False),
        ((16,), True),
    ],
)
def test_a_label_needs_a_share_and_a_lead_above_their_thresholds(votes: tuple[int, ...], firm: bool) -> None:
    answers: list[str | None] = [str(i) for i, count in enumerate(votes) for _ in range(count)]
    answers += [None] * (16 - len(answers))
    scored = score(answers, [0.5] * 16, Scrl(tau_marg=0.12 if votes == (6, 4) else 0.125))
    assert (scored.label is not None) == firm
    assert scored.parts["abstained"] == (not firm)


def test_a_lead_of_exactly_the_margin_is_not_enough() -> None:
    answers: list[str | None] = ["1"] * 6 + ["2"] * 4 + [None] * 6
    assert score(answers, [0.5] * 16, Scrl()).label is None
    # In binary 5/10 - 4/10 is 0.09999999999999998, and 4/10 - 3/10 is 0.10000000000000003.
    tenths: list[str | None] = ["1"] * 4 + ["2"] * 3 + [None] * 3
    assert score(tenths, [0.5] * 10, Scrl(tau_marg=0.1)).label is None


def test_rewards_where_all_agree_all_differ_and_nobody_answers() -> None:
    assert score(["4"] * 4, [0.1, 0.2, 0.3, 0.4], Scrl()).rewards == pytest.approx([1] * 4)  # H(a) = H
    differ = score(["1", "2", "3", "4"], [0.1, 0.2, 0.3, 0.4], Scrl(tau_neg=0.5))
    # There is no majority; 3 and 4 are rare and unsure: 1/4 - 1/2 less 0.1 (H(a) - 0.25).
    assert differ.label is None
    assert differ.rewards == pytest.approx([0.015, 0.005, -0.255, -0.265])
    unanswered = score([None, None], [0.3, 0.5], Scrl())
    assert (unanswered.label, unanswered.rewards.tolist()) == (None, [0, 0])


def test_the_positive_label_is_never_negative() -> None:
    # tau_neg = 1 would make every answer negative, but the only answer of the group is positive.
    scored = score(["4", "4"], [1.0, 1.0], Scrl(tau_neg=1.0))
    assert scored.rewards == pytest.approx([1, 1])


@given(group=any_groups(), random=st.randoms(use_true_random=False))
def test_rewards_stay_in_range_and_follow_a_permutation(group: Group, random: Random) -> None:
    order = list(range(len(group.answers)))
    random.shuffle(order)
    method = Scrl()
    scored = method.score(group)
    assert ((scored.rewards >= -0.125 - 0.2) & (scored.rewards <= 1.2)).all()  # lambda times two nats at most
    assert all(reward <= 0 for reward, answer in zip(scored.rewards, group.answers, strict=True) if answer is None)
    advantages = zip(method.advantages(scored.rewards), group.answers, strict=True)
    assert all(advantage <= 0 for advantage, answer in advantages if answer is None)
    again = method.score(permuted(group, order))
    assert again.rewards == pytest.approx(scored.rewards[order])
    assert again.label == scored.label


def test_missing_entropies_are_named_in_the_error() -> None:
    assert Scrl().needs == {"mean_entropy"}
    with pytest.raises(ValueError, match="mean_entropy: scrl needs one per rollout: expected 1, got "):
        Scrl().score(group_of(["1"]))


def test_a_rare_answer_as_unsure_as_the_mean_is_negative() -> None:
    # H(a) = H for every answer: 6 (1/4 < 0.3) and 7 (1/8) are negative, and the entropy term is 0.
    scored = score(ANSWERS, [0.5] * 8, Scrl(tau_neg=0.3))
    assert scored.rewards == pytest.approx([0.5] * 4 + [-0.05, -0.05, -0.175, -0.175])


@pytest.mark.parametrize(
    ("entropy", "rewards"),
    [
        (0.1, [0.74, 0.74, 0.74, 0]),  # H = 1.6/4 = 0.4: 0.75 - 0.1 (0.5 - 0.4); -0.1 (0.1 - 0.4) = 0.03 is cut off
        (0.9, [0.76, 0.76, 0.76, -0.03]),  # H = 2.4/4 = 0.6: 0.75 - 0.1 (0.5 - 0.6); -0.1 (0.9 - 0.6)
    ],
)
def test_a_rollout_without_an_answer_never_gains_from_its_entropy(entropy: float, rewards: list[float]) -> None:
    answers, entropies = ["5", "5", "5", None], [0.5, 0.5, 0.5, entropy]
    assert score(answers, entropies, Scrl()).rewards == pytest.approx(rewards, abs=1e-12)
    assert score(answers, entropies, Scrl(variant="official")).rewards[3] == -1


def test_without_selection_the_majority_always_is_the_positive_label() -> None:
    # 1 has 2/8, less than 0.375. The others have 1/8, which is not below tau_neg. H(a) = H.
    answers: list[str | None] = ["1", "1", "2", "3", "4", "5", "6", "7"]
    assert score(answers, [0.5] * 8, Scrl()).label is None
    scored = score(answers, [0.5] * 8, Scrl(selective_positives=False))
    assert (scored.label, scored.parts["abstained"]) == ("1", 0)
    assert scored.rewards == pytest.approx([0.25, 0.25, 0, 0, 0, 0, 0, 0])
    # Its share 1/4 is below tau_neg = 1/2, but the positive label is never negative. The others: 1/4 - 1/2.
    differ = score(["1", "2", "3", "4"], [0.5] * 4, Scrl(selective_positives=False, tau_neg=0.5))
    assert differ.rewards == pytest.approx([0.25, -0.25, -0.25, -0.25])
    assert score([None, None], [0.5, 0.5], Scrl(selective_positives=False)).label is None


def test_thresholds_of_zero_give_no_label_to_a_tie_where_a_majority_vote_does() -> None:
    thresholds = Scrl(tau_pos=0, tau_marg=0)
    tied: list[str | None] = ["6", "6", "5", "5"]
    assert (score(tied, [0.5] * 4, thresholds).label, score(tied, [0.5] * 4, thresholds).rewards.any()) == (None, False)
    majority = score(tied, [0.5] * 4, Scrl(selective_positives=False))
    assert (majority.label, majority.rewards.tolist()) == ("5", [0, 0, 0.5, 0.5])
    assert score(["6", "6", "5", None], [0.5] * 4, thresholds).label == "6"


def test_tau_neg_zero_leaves_no_negative_label() -> None:
    # Apart from the entropy term of -0.1 (H(a) - 0.5), only the majority earns something.
    scored = score(ANSWERS, ENTROPIES, Scrl(tau_neg=0))
    assert scored.rewards == pytest.approx([0.52] * 4 + [-0.01, -0.01, -0.05, -0.05])
    assert scored.negatives == ()
    assert score(ANSWERS, ENTROPIES, Scrl(tau_neg=0, entropy_gate=False)).negatives == ()


def test_without_the_entropy_gate_a_rare_answer_is_negative_however_sure() -> None:
    # 6 (1/4 < 0.3) has the entropy 0.1, below the mean 0.375: 1/4 - 0.3 - 0.1 (0.1 - 0.375) = -0.0225.
    # 7: 1/8 - 0.3 - 0.1 (1.0 - 0.375) = -0.2375.
    entropies = [0.2, 0.2, 0.4, 0.4, 0.1, 0.1, 1.0, 0.6]
    scored = score(ANSWERS, entropies, Scrl(tau_neg=0.3, entropy_gate=False))
    assert scored.negatives == ("6", "7")
    assert scored.rewards[4:7] == pytest.approx([-0.0225, -0.0225, -0.2375])


def test_hard_rewards_are_one_zero_and_minus_one() -> None:
    assert score(ANSWERS, ENTROPIES, Scrl(dynamic_reward=False)).rewards.tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    hard = Scrl(dynamic_reward=False, tau_neg=0.3)
    assert score(ANSWERS, ENTROPIES, hard).rewards.tolist() == [1, 1, 1, 1, -1, -1, -1, -1]
    official = hard.model_copy(update={"variant": "official"})
    assert score(ANSWERS, ENTROPIES, official).rewards.tolist() == [1, 1, 1, 1, -1, -1, -1, -1]
