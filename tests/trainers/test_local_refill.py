"""Refill: further prompts take the place of those whose rollouts all have the same reward."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_loops import reward_tokens, run, train_until
from local_tiny import tiny_job
from safetensors.torch import load_file
from test_schedule import job_of

from core.grading.grader import Grader
from core.types import Scored
from services.inference.engines.base import Completion
from trainers.local.ranks import Ranks
from trainers.local.rewards import Completions, Reward, SolverReward
from trainers.local.state import Metrics, newest_step, read_state
from trainers.rewards import Rewarded
from trainers.rollouts import Content, folder_in, read_step
from trainers.schedule import questions_at, rollouts_at


@given(st.integers(1, 8), st.integers(1, 5), st.integers(1, 20), st.integers(1, 3))
def test_further_prompts_are_the_step_s_other_questions_and_those_before_them_stay(
    questions: int, prompts: int, refilled: int, step: int
) -> None:
    job = job_of(questions, prompts)
    usual, more = questions_at(job, step), questions_at(job, step, refilled)
    assert more[:prompts] == usual
    further = more[prompts:]
    others = [question for question in job.questions if question not in usual] or [*job.questions]
    for begin in range(0, refilled, len(others)):
        part = further[begin : begin + len(others)]
        assert len({question.question_id for question in part}) == len(part)
        assert {*part} <= {*others}
    assert questions_at(job, step, refilled + 3)[: len(more)] == more
    rollouts = rollouts_at(job, step, refilled)
    assert rollouts[: len(usual) * job.rollouts] == rollouts_at(job, step)
    assert len({prompt.seed for prompt in rollouts}) == len(rollouts)


def reward_groups(alive: set[int], sizes: list[int]) -> Reward:
    """The rewards of these groups of each step differ, those of all others are equal."""

    def reward(_step: int, completions: Completions) -> Rewarded:
        sizes.append(len(completions))
        groups = [
            Scored(None, np.arange(float(len(group))) if index in alive else np.ones(len(group)))
            for index, group in enumerate(completions)
        ]
        contents = [[Content(None, None)] * len(group) for group in completions]
        return Rewarded(groups, {}, contents=contents)

    return reward


@pytest.mark.parametrize(
    ("refill", "alive", "sizes", "trained"),
    [
        (0, {1, 4, 5}, [3], [0, 1, 2]),
        (2, {1, 4, 5}, [3, 5], [1, 4]),
        (9, {1, 4, 5}, [3, 5, 6], [1, 4, 5]),
        (9, {0, 1, 2}, [3], [0, 1, 2]),
        (4, set[int](), [3, 6, 7], []),
    ],
)
def test_a_step_samples_further_prompts_until_enough_teach_something(
    tmp_path: Path, start: Path, refill: int, alive: set[int], sizes: list[int], trained: list[int]
) -> None:
    """`sizes`: the prompts at each call of the reward; `trained`: the groups that get advantages."""
    job = tiny_job(tmp_path, start, steps=1, checkpoint_every=1, refill=refill, weight_decay=0.0)
    job, called, metrics = replace(job, stored_prompts=sizes[-1]), list[int](), list[Metrics]()
    run(job, metrics.append, reward=reward_groups(alive, called))
    assert called == sizes
    assert metrics[0].get("refilled", 0) == sizes[-1] - 3
    assert metrics[0]["zero_advantage_share"] == pytest.approx(1 - len(alive & {*range(sizes[-1])}) / sizes[-1])
    rows = [row for row, _ in read_step(folder_in(job.work_dir), 1)]
    groups = [rows[i : i + job.rollouts] for i in range(0, len(rows), job.rollouts)]
    assert [i for i, group in enumerate(groups) if any(row.advantage is not None for row in group)] == trained
    before, after = (load_file(folder / "model.safetensors") for folder in (start, job.work_dir / "final"))
    assert any(not np.array_equal(before[name], after[name]) for name in before) == bool(trained)


def test_the_rewards_of_a_step_s_further_prompts_are_those_of_all_at_once(tmp_path: Path) -> None:
    job = tiny_job(tmp_path, refill=2)

    def completions(group: int) -> list[Completion]:
        return [Completion(f"\\boxed{{{(group + i) % 4}}}", (3,), (-0.1,), "stop", 0.5, 1) for i in range(job.rollouts)]

    groups = [completions(group) for group in range(5)]
    with Grader() as grader:
        reward, at_once = SolverReward(job, Ranks(), grader), SolverReward(job, Ranks(), grader)
        for step in (1, 2):
            parts = [reward(step, groups[:count]) for count in (3, 5)]
            expected = at_once(step, groups)
            assert [scored.rewards.tolist() for scored in parts[-1].groups] == [
                scored.rewards.tolist() for scored in expected.groups
            ]
            assert parts[-1].metrics == expected.metrics
            assert parts[-1].contents == expected.contents


def test_a_resumed_training_refills_as_one_that_goes_through(tmp_path: Path, start: Path) -> None:
    def reward(step: int, completions: Completions) -> Rewarded:
        rewarded = reward_tokens(step, completions)
        groups = [Scored(None, np.round(scored.rewards)) for scored in rewarded.groups]
        return Rewarded(groups, {})

    changes: dict[str, Any] = {"refill": 3, "rollouts_per_prompt": 2}
    whole, stopped = (tiny_job(tmp_path / name, start, **changes) for name in ("whole", "stopped"))
    run(whole, reward=reward)
    train_until(stopped, reward, 3)
    run(stopped, reward=reward)
    files = [job.work_dir / "final" / "model.safetensors" for job in (whole, stopped)]
    assert files[0].read_bytes() == files[1].read_bytes()
    folder = newest_step(whole)
    assert folder is not None
    assert any(step["refilled"] for step in read_state(folder).metrics)
