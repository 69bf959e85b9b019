"""The Challenger's rewards of other papers, by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.challenger import CHALLENGER_REWARDS, Asked, ChallengerReward
from core.challenger.r_diverse import RDiverseChallenger
from core.questions.skeletons import similarities, skeleton
from core.settings.config import CoEvolution
from core.types import PseudoLabel

SUM, PRODUCT, LONG = "What is 3 + 4?", "What is 3 * 4?", "Find the value of 3 + 4 - 5."
WORDS = "How many primes are there below 100?"


def label(votes: int) -> PseudoLabel:
    return PseudoLabel("7" if votes else None, votes, 10, votes, 0, votes / 10, "all")


def reward(name: str, **settings: Any) -> ChallengerReward:
    return CHALLENGER_REWARDS[name](**settings)


def values(config: ChallengerReward, votes: list[int | None], **known: Any) -> list[float]:
    questions = [None if v is None else f"Question {i} of its own kind, {i}?" for i, v in enumerate(votes)]
    asked = Asked(questions, [None if v is None else label(v) for v in votes], **known)
    return [score.value for score in config.scores(asked)]


ALONE = {"repetition_weight": 0}


@pytest.mark.parametrize(
    ("settings", "rewards"),
    [
        # 1 - |p - .7| / .5 at p = .7, .5, 1, .2, .1
        ({}, [1.0, 0.6, 0.4, 0.0, 0.0]),
        ({"peak": 0.5}, [0.6, 1.0, 0.0, 0.4, 0.2]),  # R-Zero's
        ({"width": 0.25}, [1.0, 0.2, 0.0, 0.0, 0.0]),
    ],
)
def test_a_target_has_its_peak_and_its_width(settings: dict[str, float], rewards: list[float]) -> None:
    assert values(reward("target", **ALONE, **settings), [7, 5, 10, 2, 1]) == pytest.approx(rewards)


@given(st.lists(st.none() | st.integers(0, 10), min_size=1, max_size=10), st.floats(0, 2))
def test_a_target_of_one_half_is_r_zero_s_reward(votes: list[int | None], weight: float) -> None:
    of_rzero = values(reward("rzero", repetition_weight=weight), votes)
    assert values(reward("target", peak=0.5, repetition_weight=weight), votes) == pytest.approx(of_rzero)


@pytest.mark.parametrize(
    ("question", "earlier", "expected"),
    [
        # The n-grams of "+ -" are +, -, "+ -"; those of "+" are +; the cosine is 1 / sqrt(3).
        (LONG, (SUM,), (3**-0.5, 3**-0.5)),
        (SUM, (SUM, PRODUCT), (1.0, 0.5)),
        (SUM, (PRODUCT,), (0.0, 0.0)),
        ("What is 9 + 9?", (SUM,), (1.0, 1.0)),  # numbers do not count
        (WORDS, ("How many primes are there below 200?",), (1.0, 1.0)),
    ],
)
def test_how_alike_the_skeletons_are(question: str, earlier: tuple[str, ...], expected: tuple[float, float]) -> None:
    [found] = similarities([question], earlier)
    assert found == pytest.approx(expected)


def test_a_skeleton_is_of_operations_or_of_words() -> None:
    assert (skeleton(LONG), skeleton("What is x + 4?")) == ("+ -", "What is x + ?")


def test_the_memory_s_penalty_by_hand() -> None:
    """The uncertainty of 1/2 is 1. A skeleton that all earlier questions have costs .5 (1 - .5) + .5 (1 - .25)."""
    config = RDiverseChallenger(repetition_weight=0)
    asked = Asked([SUM, PRODUCT, None], [label(5), label(5), None], earlier=(SUM, SUM))
    scores = config.scores(asked)
    assert [score.value for score in scores] == pytest.approx([1 - 0.625, 1.0, 0.0])
    assert [score.parts["memory"] for score in scores] == pytest.approx([0.625, 0, 0])
    half = config.scores(Asked([SUM], [label(5)], earlier=(SUM, PRODUCT, PRODUCT, PRODUCT)))
    assert half[0].parts["memory"] == pytest.approx(0.5 * 0.5)  # P_mean is .25: no more than tau_mean
    twice = RDiverseChallenger(repetition_weight=0, memory_weight=2.0).scores(asked)
    assert [score.value for score in twice] == pytest.approx([0.0, 1.0, 0.0])  # cut off at 0


@given(st.lists(st.none() | st.integers(0, 10), min_size=1, max_size=10))
def test_without_earlier_questions_r_diverse_is_r_zero(votes: list[int | None]) -> None:
    assert values(reward("r_diverse"), votes) == values(reward("rzero"), votes)


def test_vhg_pays_for_hardness_unless_a_question_has_no_answer() -> None:
    votes, posed = [3, 10, 0, 3, None], [True, None, None, False, None]
    assert values(reward("vhg"), votes, well_posed=posed) == pytest.approx([0.7, 0, 1, 0, 0])


@pytest.mark.parametrize(
    ("votes", "rewards"),
    [
        # Between never and always are .1 to .9; of their lowest 70% the highest is the 7th, .7: int(9 * .7) = 6.
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, None], [0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0, 0, 0, 0]),
        ([0, 10], [0, 0]),
        ([5], [0.5]),
    ],
)
def test_sgs_pays_for_what_is_solved_seldom_and_not_among_the_easiest(
    votes: list[int | None], rewards: list[float]
) -> None:
    assert values(reward("sgs"), votes, well_posed=[None] * len(votes)) == pytest.approx(rewards)
    assert values(reward("sgs"), votes, well_posed=[False] * len(votes)) == [0] * len(votes)


def test_random_rewards_are_drawn_from_the_seed_alone() -> None:
    first, again, other = (values(reward("random"), [0, 5, None, 10], seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert first == [value if i != 2 else 0 for i, value in enumerate(first)]
    drawn = values(reward("random"), [random.randrange(11) for _ in range(2000)], seed=3)
    assert sum(drawn) / len(drawn) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("name", sorted(CHALLENGER_REWARDS))
def test_a_preset_chooses_a_reward_by_its_type(name: str) -> None:
    chosen = CoEvolution.model_validate({"challenger": {"reward": {"type": name, "votes": 4}}}).challenger.reward
    assert type(chosen) is CHALLENGER_REWARDS[name]
    assert (chosen.type, chosen.votes) == (name, 4)


def test_a_reward_without_a_type_is_r_zero_s() -> None:
    assert CoEvolution.model_validate({"challenger": {"reward": {"votes": 4}}}).challenger.reward.type == "rzero"
