"""A step's prompts: every question comes once an epoch, all seeds differ, and no state is kept between steps. The
learning rate of a step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_tiny import tiny_challenger, tiny_job

from core.settings.templates import ChallengerTemplate, SolverTemplate
from core.settings.training import Sampling
from trainers.base import Rounds, SolverJob, SolverService, TrainQuestion
from trainers.schedule import learning_rate_at, questions_at, rollouts_at


def job_of(questions: int, prompts_per_step: int, run_seed: int = 7) -> SolverJob:
    job = tiny_job(Path("unused"), prompts_per_step=prompts_per_step)
    train_questions = tuple(TrainQuestion(str(i), f"question {i}", "0") for i in range(questions))
    return replace(job, questions=train_questions, run_seed=run_seed)


@settings(max_examples=50)
@given(st.integers(1, 12), st.integers(1, 7), st.integers(1, 5), st.integers(0, 99))
def test_every_epoch_has_every_question_once(questions: int, prompts: int, epochs: int, seed: int) -> None:
    job = job_of(questions, prompts, seed)
    steps = -(-questions * epochs // prompts)
    order = [question.question_id for step in range(1, steps + 1) for question in questions_at(job, step)]
    for epoch in range(epochs):
        assert Counter(order[epoch * questions : (epoch + 1) * questions]) == Counter(map(str, range(questions)))


def test_shuffles_differ_between_epochs_and_runs() -> None:
    first, second = (questions_at(job_of(12, 12), step) for step in (1, 2))
    assert first != second
    assert first != questions_at(job_of(12, 12, run_seed=8), 1)
    assert first == questions_at(job_of(12, 12), 1)


def test_a_step_s_rollouts_are_whole_groups_with_a_seed_each() -> None:
    job = job_of(5, 3)
    prompts = [prompt for step in (1, 2) for prompt in rollouts_at(job, step)]
    size = job.training.rollouts_per_prompt
    chats = [job.template.messages(question.text) for step in (1, 2) for question in questions_at(job, step)]
    assert [list(prompt.messages) for prompt in prompts] == [chat for chat in chats for _ in range(size)]
    assert {prompt.n for prompt in prompts} == {1}
    assert len({prompt.seed for prompt in prompts}) == len(prompts) == 2 * 3 * size


def test_the_challenger_s_prompts_are_equal_and_have_different_seeds() -> None:
    service = SolverService("http://127.0.0.1:1/v1", "t/solver/0", Sampling())
    job = tiny_challenger(Path("unused"), service, prompts_per_step=2)
    prompts = rollouts_at(job, 1)
    assert all(list(prompt.messages) == job.template.messages() for prompt in prompts)
    assert len({prompt.seed for prompt in prompts}) == len(prompts) == 2 * job.training.rollouts_per_prompt


def test_a_job_s_template_is_that_of_its_prompts() -> None:
    solver = replace(job_of(5, 3), template=SolverTemplate(system="", user="Q: {question}"))
    question = questions_at(solver, 1)[0].text
    assert rollouts_at(solver, 1)[0].messages == ({"role": "user", "content": f"Q: {question}"},)
    service = SolverService("http://127.0.0.1:1/v1", "t/solver/0", Sampling())
    template = ChallengerTemplate(system="", user="Pose one!")
    challenger = replace(tiny_challenger(Path("unused"), service), template=template)
    assert rollouts_at(challenger, 1)[0].messages == ({"role": "user", "content": "Pose one!"},)


def test_a_later_job_of_a_training_continues_where_the_one_before_ended() -> None:
    """Two jobs of two steps have the same prompts and seeds as one job of four."""
    whole = job_of(7, 3)
    later = replace(whole, steps_before=2)
    assert [rollouts_at(later, step) for step in (1, 2)] == [rollouts_at(whole, step) for step in (3, 4)]
    assert rollouts_at(later, 1) != rollouts_at(whole, 1)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ({}, [8, 8, 8, 8]),
        ({"warmup_steps": 2}, [0, 4, 8, 8]),
        # (1 + cos(pi k / 4)) / 2 for k = 0, 1, 2, 3; cos(pi / 4) = 0.70711
        ({"schedule": "cosine"}, [8, 6.82843, 4, 1.17157]),
        # after the warm-up the cosines of 0, pi / 3 and 2 pi / 3, which are 1, 1/2 and -1/2
        ({"schedule": "cosine", "warmup_steps": 1}, [0, 8, 6, 2]),
    ],
)
def test_the_learning_rate_by_hand(schedule: dict[str, Any], rates: list[float]) -> None:
    job = tiny_job(Path("unused"), steps=4, learning_rate=8e-3, **schedule)
    assert [1e3 * learning_rate_at(job, step) for step in (1, 2, 3, 4)] == pytest.approx(rates, abs=1e-4)


def test_a_round_s_learning_rates_are_those_of_the_whole_training() -> None:
    whole = tiny_job(Path("unused"), steps=4, schedule="cosine", warmup_steps=1)
    second = replace(tiny_job(Path("unused"), steps=2, schedule="cosine", warmup_steps=1), steps_before=2)
    expected = [learning_rate_at(whole, step) for step in (3, 4)]
    assert [learning_rate_at(replace(second, rounds=Rounds(4)), step) for step in (1, 2)] == expected
    assert learning_rate_at(second, 1) == 0  # a fresh round warms up again
