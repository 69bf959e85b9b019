from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.challenger import Asked, RZeroChallenger
from core.types import PseudoLabel

OFFICIAL: dict[str, Any] = {"variant": "official"}

TWIN = "Find the sum of all positive divisors of the number 360 and prove it."
OTHER_TWIN = "Find the sum of all positive divisors of the number 480 and prove it."
ALONE = "How many primes are there below one hundred?"


def label(votes: int, m: int = 10) -> PseudoLabel:
    return PseudoLabel("7" if votes else None, votes, m, votes, 0, votes / m, "all")


def values(questions: list[str | None], votes: list[int | None], config: RZeroChallenger) -> list[float]:
    labels = [None if v is None else label(v) for v in votes]
    return [score.value for score in config.scores(Asked(questions, labels))]


@pytest.mark.parametrize(
    ("settings", "questions", "votes", "rewards"),
    [
        # The twins are a cluster (share 2/5), the third question is one alone (1/5), the malformed are in none.
        # 5 of 10: 1 - 2|0.5 - 0.5| = 1 less 2/5; 3 of 10: 1 - 2 * 0.2 less 2/5; 8 of 10: 1 - 2 * 0.3 less 1/5.
        ({}, [TWIN, OTHER_TWIN, ALONE, None, None], [5, 3, 8, None, None], [0.6, 0.2, 0.2, 0, 0]),
        # Cut off at zero: 10 of 10: 1 - 2 * 0.5 = 0, less 1/2; 9 of 10: 0.2 less 1/2. No answers: p_hat is 0.
        ({}, [TWIN, ALONE], [10, 9], [0, 0]),
        ({}, [TWIN, ALONE], [0, 10], [0, 0]),
        # Half of the shares 2/4, 2/4 and 1/4.
        ({"repetition_weight": 0.5}, [TWIN, OTHER_TWIN, ALONE, None], [5, 5, 5, None], [0.75, 0.75, 0.875, 0]),
        # The ablation of Table 3.
        ({"repetition_weight": 0}, [TWIN, OTHER_TWIN, ALONE, None], [5, 5, 8, None], [1, 1, 0.4, 0]),
        (OFFICIAL | {"repetition_weight": 0}, [TWIN, OTHER_TWIN, ALONE, None], [5, 5, 8, None], [0.5, 0.5, 0.2, -1]),
        # The released code: min(p, 1 - p) less the share, not cut off; malformed: -1 less the share of an empty
        # question, 1/5.
        (OFFICIAL, [TWIN, OTHER_TWIN, ALONE, None, None], [5, 3, 10, None, None], [0.1, -0.1, -0.2, -1.2, -1.2]),
        ({}, [], [], []),
        (OFFICIAL, [], [], []),
    ],
)
def test_the_reward_by_hand(
    settings: dict[str, Any], questions: list[str | None], votes: list[int | None], rewards: list[float]
) -> None:
    assert values(questions, votes, RZeroChallenger(**settings)) == pytest.approx(rewards)


def test_the_bleu_distance_decides_which_questions_repeat_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RZeroChallenger, "bleu_distance", 0.01)  # only an identical text is a repetition
    assert values([TWIN, OTHER_TWIN, TWIN], [5, 5, 5], RZeroChallenger()) == pytest.approx([1 / 3, 2 / 3, 1 / 3])


@pytest.mark.parametrize(
    ("settings", "kept", "malformed"),
    [
        ({}, {"uncertainty": 0.8, "repetition": 0.5}, {"repetition": 0, "cluster_size": 0}),
        (OFFICIAL, {"uncertainty": 0.4, "repetition": 0.5}, {"repetition": 0.5, "cluster_size": 1}),
        ({"repetition_weight": 0}, {"uncertainty": 0.8, "repetition": 0}, {"repetition": 0, "cluster_size": 0}),
    ],
)
def test_the_parts_of_a_score_explain_the_reward(
    settings: dict[str, Any], kept: dict[str, float], malformed: dict[str, float]
) -> None:
    first, second = RZeroChallenger(**settings).scores(Asked([ALONE, None], [label(4), None]))
    assert first.parts == pytest.approx({"p_hat": 0.4, "malformed": 0, "cluster_size": 1, **kept})
    assert second.parts == pytest.approx({"uncertainty": 0, "p_hat": 0, "malformed": 1, **malformed})


@pytest.mark.parametrize(
    ("questions", "labels"), [([ALONE], []), ([ALONE], [None]), ([None], [label(5)]), ([], [label(5)])]
)
def test_labels_must_match_the_questions(questions: list[str | None], labels: list[PseudoLabel | None]) -> None:
    with pytest.raises(ValueError, match="labels: expected"):
        Asked(questions, labels)


QUESTIONS = st.none() | st.sampled_from([TWIN, OTHER_TWIN, ALONE, "What is 3 + 4?", "What is 3 + 5?"])
BATCHES = st.lists(st.tuples(QUESTIONS, st.integers(0, 10)), max_size=10)
VARIANTS = st.sampled_from(["paper", "official"])


def rewards_of(batch: list[tuple[str | None, int]], config: RZeroChallenger) -> list[float]:
    return values([q for q, _ in batch], [None if q is None else votes for q, votes in batch], config)


@given(BATCHES, st.floats(0, 5))
def test_the_paper_s_reward_stays_in_range_and_is_zero_for_a_malformed_question(
    batch: list[tuple[str | None, int]], weight: float
) -> None:
    rewards = rewards_of(batch, RZeroChallenger(repetition_weight=weight))
    assert all(0 <= reward <= 1 for reward in rewards)
    assert all(reward == 0 for reward, (question, _) in zip(rewards, batch, strict=True) if question is None)


@given(BATCHES)
def test_the_released_code_s_reward_stays_in_range_and_is_lowest_for_a_malformed_question(
    batch: list[tuple[str | None, int]],
) -> None:
    for reward, (question, _) in zip(rewards_of(batch, RZeroChallenger(**OFFICIAL)), batch, strict=True):
        assert -2 <= reward < -1 if question is None else -1 <= reward <= 0.5


@given(BATCHES, VARIANTS, st.randoms(use_true_random=False))
def test_rewards_follow_their_questions_in_any_order(
    batch: list[tuple[str | None, int]], variant: str, random: object
) -> None:
    # BLEU is not symmetric in general, but it is for the twins here, which have the same length.
    order = list(range(len(batch)))
    random.shuffle(order)
    config = RZeroChallenger(variant=variant)
    rewards = rewards_of(batch, config)
    assert rewards_of([batch[i] for i in order], config) == pytest.approx([rewards[i] for i in order])


@given(BATCHES, VARIANTS)
def test_a_repeated_question_never_earns_more(batch: list[tuple[str | None, int]], variant: str) -> None:
    # A copy of the first question replaces a malformed rollout, so that the size of the batch stays the same.
    config = RZeroChallenger(variant=variant)
    [alone, *_] = rewards_of([(ALONE, 5), *batch, (None, 0)], config)
    [repeated, *_] = rewards_of([(ALONE, 5), *batch, (ALONE, 5)], config)
    assert repeated <= alone
