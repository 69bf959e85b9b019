"""The rollouts that a training hands back: what was rewarded, read by step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from local_loops import run
from local_tiny import tiny_challenger, tiny_job

from core.grading.grader import Grader
from core.methods import Method
from core.methods.poly_epo import GrpoDiv
from core.methods.rzero import RZero
from core.methods.ttrl import Ttrl
from core.processes.faultpoints import FaultPoint, arm
from core.settings.training import Sampling
from core.types import Group, PseudoLabel, Scored, TrainingRollout
from services.inference.client import Reply
from services.inference.engines.base import Completion, Prompt
from trainers.base import SolverService, TrainJob, TrainQuestion
from trainers.local.ranks import Ranks
from trainers.local.rewards import challenger_reward, make_reward
from trainers.local.state import Metrics
from trainers.rollouts import Content, Sample, folder_in, read_step, sampled_prompts, solver_contents, write_step

EVERYTHING = 99


def trained(job: TrainJob, grader: Grader, start: Path, last_step: int | None = None) -> list[Metrics]:
    """Train `job` from `start`; with `last_step`, until a worker fails after that step, before its checkpoint."""
    metrics: list[Metrics] = []

    def report(step: Metrics) -> None:
        metrics.append(step)
        if step["step"] == last_step:
            raise KeyboardInterrupt

    job = replace(job, start=replace(job.start, path=str(start)))
    reward = make_reward(job, Ranks(), grader)
    try:
        run(job, report, reward=reward)
    except KeyboardInterrupt:
        assert last_step is not None
    return metrics


def stored(job: TrainJob, step: int) -> list[TrainingRollout]:
    return [rollout for rollout, _ in read_step(folder_in(job.work_dir), step)]


def job_storing(work: Path, prompts: int, **changes: Any) -> TrainJob:
    return replace(tiny_job(work, **changes), stored_prompts=prompts)


@pytest.mark.parametrize("method", [RZero(), Ttrl(), GrpoDiv(labels="online")], ids=lambda method: method.type)
def test_the_rewards_of_all_rollouts_have_the_mean_that_the_step_reports(
    tmp_path: Path, start: Path, grader: Grader, method: Method
) -> None:
    job = job_storing(tmp_path, EVERYTHING, reward=method)
    for metrics in trained(job, grader, start):
        rows = stored(job, int(metrics["step"]))
        assert [(row.prompt, row.rollout) for row in rows] == [(p, r) for p in range(3) for r in range(4)]
        assert fmean(row.reward for row in rows) == pytest.approx(metrics["reward_mean"], abs=1e-12)
        assert fmean(row.tokens for row in rows) == pytest.approx(metrics["response_length"])
        assert fmean(row.finish_reason == "length" for row in rows) == pytest.approx(metrics["truncated_share"])
        dropped = {row.prompt for row in rows} - {row.prompt for row in rows if row.advantage is not None}
        assert len(dropped) / 3 == pytest.approx(metrics["dropped_share"])


def test_advantages_are_those_of_the_trained_rollouts_and_missing_for_the_others(
    tmp_path: Path, start: Path, grader: Grader
) -> None:
    job = job_storing(tmp_path, EVERYTHING, reward=Ttrl(trained_share=0.5))
    trained(job, grader, start)
    rows = stored(job, 1)
    assert {row.rollout for row in rows if row.advantage is not None} == {0, 1}  # the first half of four
    assert any(row.advantage for row in rows)
    for prompt in range(3):
        rewards = np.array([row.reward for row in rows if row.prompt == prompt])
        advantages = [row.advantage for row in rows if row.prompt == prompt]
        if advantages[0] is not None:
            assert advantages[:2] == job.reward.advantages(rewards[:2]).tolist()
        assert advantages[2:] == [None, None]


def test_a_training_that_dies_between_checkpoints_hands_back_the_same_rollouts(
    tmp_path: Path, start: Path, grader: Grader
) -> None:
    whole, killed = (job_storing(tmp_path / name, 2) for name in ("whole", "killed"))
    trained(whole, grader, start)
    assert len(trained(killed, grader, start, last_step=3)) == 3  # the newest checkpoint is that of step 2
    assert [step["step"] for step in trained(killed, grader, start)] == [3, 4]
    for step in range(1, 5):
        rows = read_step(folder_in(whole.work_dir), step)
        assert len({rollout.prompt for rollout, _ in rows}) == 2
        assert rows == read_step(folder_in(killed.work_dir), step)


def test_a_job_that_stores_no_prompts_writes_no_rollouts(tmp_path: Path, start: Path, grader: Grader) -> None:
    job = job_storing(tmp_path, 0)
    trained(job, grader, start)
    assert not folder_in(job.work_dir).exists()
    assert stored(job, 1) == []


def contents_of(*questions: str | None, question_ids: bool = True) -> list[list[Content]]:
    return [[Content(f"t/1/{i}" if question_ids else None, question)] for i, question in enumerate(questions)]


def test_a_question_keeps_its_rank_from_step_to_step() -> None:
    alphabet = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]
    chosen = [alphabet[i] for i in sampled_prompts(7, "1/train_solver", contents_of(*alphabet), 3)]
    assert len(chosen) == 3
    others = [letter for letter in alphabet if letter not in chosen]
    step = [*others[:9], chosen[2], chosen[0]]
    assert {9, 10} < set(sampled_prompts(7, "1/train_solver", contents_of(*step), 3))
    assert chosen != [alphabet[i] for i in sampled_prompts(8, "1/train_solver", contents_of(*alphabet), 3)]


def test_the_challenger_s_prompts_are_chosen_whatever_it_wrote() -> None:
    written, other = (contents_of(*texts, question_ids=False) for texts in ("abcd", [None, "x", "y", "z"]))
    assert sampled_prompts(7, "1/train_challenger", written, 2) == sampled_prompts(7, "1/train_challenger", other, 2)
    assert sampled_prompts(7, "1/train_challenger", written, 9) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("label", "given", "expected"),
    [
        ("3", None, [True, True, False, False]),  # the majority
        ("4", None, [False, False, True, False]),  # the label of a method that rewards another class
        ("3.00", (True, False, False, False), [True, False, False, False]),  # as compared with the given label
        (None, None, [None] * 4),
        ("5", None, [None] * 4),
    ],
)
def test_an_answer_agrees_if_it_is_in_the_class_of_the_label(
    label: str | None, given: tuple[bool, ...] | None, expected: list[bool | None]
) -> None:
    vote = PseudoLabel("3", 2, 4, 3, 0, 0.5, "all", (("3", 2), ("4", 1)))
    group = Group(("3", "3.0", "4", None), vote, (0, 0, 1, None), label if given else None, given)
    contents = solver_contents(TrainQuestion("t/1/0", "1 + 2?", None), group, Scored(label, np.zeros(4)))
    assert [content.agrees for content in contents] == expected
    assert [content.answer for content in contents] == ["3", "3.0", "4", None]


def test_a_worker_that_was_suspended_before_its_rename_does_not_disturb_its_successor(tmp_path: Path) -> None:
    """Both write the same step: one was suspended and goes on while the other, which has taken over, is writing."""
    contents, samples = [Content("t/1/0", "1 + 2?", "3", True)], [Sample("text", 3, "stop", None, 0.25)]

    def write() -> None:
        write_step(tmp_path, 4, [0], [Scored("3", np.array([0.5]))], [contents], [samples])

    def in_between(name: FaultPoint, _unit: str) -> None:
        if name == "file written":
            arm(None)
            write()

    arm(in_between)
    write()
    assert [text for _, text in read_step(tmp_path, 4)] == ["text"]


def test_a_rollout_has_its_own_parts_and_the_figures_of_its_group(tmp_path: Path) -> None:
    own = ({"bonus": 0.0}, {"bonus": 1.0})
    scored = Scored("3", np.array([0.5, 1.0]), parts={"bonus": 0.5, "valid_share": 1.0}, rollout_parts=own)
    contents = [Content("t/1/0", "1 + 2?", "3", True)] * 2
    samples = [Sample("\ud83d \u2028 text", 3, "stop", None, advantage) for advantage in (0.25, None)]
    write_step(tmp_path, 4, [0], [scored], [contents], [samples])
    (first, text), (second, _) = read_step(tmp_path, 4)
    assert [first.parts, second.parts] == [{"bonus": bonus, "valid_share": 1.0} for bonus in (0.0, 1.0)]
    assert (first.step, second.reward, second.advantage, text) == (4, 1.0, None, samples[0].text)


def completions_of(*texts: str) -> list[Completion]:
    return [Completion(text, (1, 2), (-0.1, -0.2), "stop", 0.5) for text in texts]


def test_a_challenger_s_rollout_has_the_parts_of_its_reward(grader: Grader) -> None:
    service = SolverService("http://127.0.0.1:1/v1", "t/solver/0", Sampling(max_tokens=9))
    job = tiny_challenger(Path("unused"), service, votes=4, prompts_per_step=1, rollouts_per_prompt=2)

    def ask(prompts: Any) -> list[list[Reply]]:
        assert all(isinstance(prompt, Prompt) for prompt in prompts)
        texts = [r"\boxed{3}"] * 3 + [r"\boxed{4}"]
        return [[Reply(text, 3, "stop", 0.1, 0.0, "t/solver/0", i, 1) for i, text in enumerate(texts)] for _ in prompts]

    completions = [completions_of("<question>What is 1 + 2?</question>", "nothing")]
    rewarded = challenger_reward(job, Ranks(), 1, completions, grader=grader, ask=ask)
    # p_hat = 3/4, so the uncertainty is 1/2; the only cluster has one of the two rollouts.
    assert rewarded.groups[0].rewards.tolist() == [0.0, 0.0]
    written, malformed = rewarded.groups[0].rollout_parts
    assert written == {"uncertainty": 0.5, "repetition": 0.5, "p_hat": 0.75, "malformed": 0.0, "cluster_size": 1.0}
    assert malformed["malformed"] == 1.0
    assert [content.question for content in rewarded.contents[0]] == ["What is 1 + 2?", None]
