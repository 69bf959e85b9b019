"""The stored rollouts of trainings: in every order, page by page, and the figures of their steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from store_examples import fresh_run, reads, training_rollout, writes

from core.types import TrainingRollout
from storage import queries
from storage.errors import NotThere
from storage.queries.training_rollouts import SORTS, Sort, Training
from storage.rows import TrainingStep
from storage.session import Store

# step, prompt, rollout: reward, advantage, tokens, entropy
_VALUES: dict[tuple[int, int, int], tuple[float, float | None, int, float | None]] = {
    (1, 0, 0): (1.0, 0.5, 7, 0.2),
    (1, 0, 1): (0.0, -0.5, 9, 0.4),
    (1, 3, 0): (0.25, None, 5, None),
    (2, 0, 0): (-1.0, 0.25, 7, 0.1),
    (2, 0, 1): (1.0, -0.25, 3, 0.3),
}
ROLLOUTS = [
    training_rollout(*key, reward=reward, advantage=advantage, tokens=tokens, mean_entropy=entropy, question_id=f"q{p}")
    for key, (reward, advantage, tokens, entropy) in _VALUES.items()
    for p in (key[1],)
]


@pytest.fixture
def training(store: Store) -> Training:
    """A training with the rollouts; the same run has other trainings, whose rollouts no query of this one returns."""
    run = fresh_run(store)
    writes(store).training_rollouts.add(Training(run, 1, "solver"), ROLLOUTS)
    for other in (Training(run, 2, "solver"), Training(run, 1, "challenger")):
        writes(store).training_rollouts.add(other, [training_rollout(9, reward=7.0)])
    return Training(run, 1, "solver")


def keys(rollouts: list[TrainingRollout]) -> list[tuple[int, int, int]]:
    return [(row.step, row.prompt, row.rollout) for row in rollouts]


def test_rollouts_are_read_back_as_they_were_stored_first(store: Store, training: Training) -> None:
    with store.write() as session:
        queries.training_rollouts.add(session, training, [replace(row, reward=9.0) for row in ROLLOUTS])
        assert queries.training_rollouts.list_rollouts(session, training) == ROLLOUTS
        assert queries.training_rollouts.find(session, training, 1, 3, 0) == ROLLOUTS[2]
        with pytest.raises(NotThere, match="rollout 1 of prompt 3 of step 1"):
            queries.training_rollouts.find(session, training, 1, 3, 1)


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("-reward", [(1, 0, 0), (2, 0, 1), (1, 3, 0), (1, 0, 1), (2, 0, 0)]),
        ("reward", [(2, 0, 0), (1, 0, 1), (1, 3, 0), (1, 0, 0), (2, 0, 1)]),
        ("-advantage", [(1, 0, 0), (2, 0, 0), (2, 0, 1), (1, 0, 1), (1, 3, 0)]),  # missing values are last
        ("entropy", [(2, 0, 0), (1, 0, 0), (2, 0, 1), (1, 0, 1), (1, 3, 0)]),
        ("-tokens", [(1, 0, 1), (1, 0, 0), (2, 0, 0), (1, 3, 0), (2, 0, 1)]),
    ],
)
def test_the_best_or_the_worst_come_first(
    store: Store, training: Training, sort: Sort, expected: list[tuple[int, int, int]]
) -> None:
    assert keys(reads(store).training_rollouts.list_rollouts(training, sort=sort)) == expected


@pytest.mark.parametrize("sort", SORTS)
def test_pages_follow_one_another_without_gaps(store: Store, training: Training, sort: Sort) -> None:
    whole = reads(store).training_rollouts.list_rollouts(training, sort=sort)
    after, pages = tuple[float, ...](), list[TrainingRollout]()
    while page := reads(store).training_rollouts.list_rollouts(training, sort=sort, after=after, limit=2):
        pages += page
        after = queries.training_rollouts.sort_key_of(page[-1], sort)
    assert pages == whole
    assert sorted(keys(whole)) == sorted(_VALUES)


def test_filters_select_a_step_a_prompt_or_a_question(store: Store, training: Training) -> None:
    of_step = reads(store).training_rollouts.list_rollouts(training, step=2)
    of_prompt = reads(store).training_rollouts.list_rollouts(training, step=1, prompt=3)
    of_question = reads(store).training_rollouts.list_rollouts(training, question_id="q0")
    assert keys(of_step) == [(2, 0, 0), (2, 0, 1)]
    assert keys(of_prompt) == [(1, 3, 0)]
    assert keys(of_question) == [(1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 0, 1)]


def test_steps_have_the_figures_of_their_stored_rollouts(store: Store, training: Training) -> None:
    steps = reads(store).training_rollouts.steps_of(training)
    assert steps == [
        TrainingStep(1, prompts=2, rollouts=3, trained_on=2, reward_mean=1.25 / 3, reward_min=0.0, reward_max=1.0),
        TrainingStep(2, prompts=1, rollouts=2, trained_on=2, reward_mean=0.0, reward_min=-1.0, reward_max=1.0),
    ]


def test_an_undecided_rollout_has_no_part_in_the_rewards_of_its_step(store: Store) -> None:
    training = Training(fresh_run(store), 1, "solver")
    rewards = {(1, 0, 0): 1.0, (1, 0, 1): 0.5, (1, 0, 2): None, (2, 0, 0): None}  # step, prompt, rollout
    writes(store).training_rollouts.add(
        training,
        [
            training_rollout(*key, reward=reward or 0.0, parts={"bonus": 0.1} if reward else {"undecided": 1.0})
            for key, reward in rewards.items()
        ],
    )
    first, second = reads(store).training_rollouts.steps_of(training)
    assert (first.rollouts, first.reward_mean, first.reward_min, first.reward_max) == (3, 0.75, 0.5, 1.0)
    assert (second.rollouts, second.reward_mean, second.reward_min, second.reward_max) == (1, None, None, None)
