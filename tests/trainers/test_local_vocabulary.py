"""A Challenger's training with vocabulary dropout: each step has a mask of its own, whoever samples and whenever."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_application import assert_equal, by_application
from local_loops import reward_tokens, run, train_until
from local_tiny import tiny_challenger, tiny_job

from core.settings.training import Sampling
from services.inference.engines.embedded import TransformersEngine
from services.inference.engines.vocabulary import kept_tokens, mask_of
from tests.fake_serve import FakeServe
from trainers.base import ChallengerJob, SolverService, TrainJob
from trainers.local.rewards import Completions
from trainers.local.state import fingerprint
from trainers.micro.bases import BASES
from trainers.rewards import Rewarded
from trainers.schedule import rollouts_at

MICRO = BASES["micro"].model


def challenger(work: Path, start: Path, retention: float = 0.8, **changes: Any) -> ChallengerJob:
    job = tiny_challenger(work, SolverService("http://127.0.0.1:1/v1", "t/solver/0", Sampling()), **changes)
    return replace(job, start=replace(job.start, path=str(start)), vocabulary_retention=retention)


def observed(tokens: list[set[int]]) -> Callable[[int, Completions], Rewarded]:
    """A reward that notes the tokens of each step."""

    def reward(step: int, completions: Completions) -> Rewarded:
        tokens.append({token for group in completions for completion in group for token in completion.tokens})
        return reward_tokens(step, completions)

    return reward


def test_all_rollouts_of_a_step_have_the_step_s_mask() -> None:
    job = challenger(Path("unused"), Path("unused"))
    by_step = [{prompt.dropout for prompt in rollouts_at(job, step)} for step in (1, 2, 3)]
    assert [len(dropouts) for dropouts in by_step] == [1, 1, 1]
    masks = [dropout for dropouts in by_step for dropout in dropouts if dropout]
    assert {mask.retention for mask in masks} == {0.8}
    assert len({mask.seed for mask in masks}) == 3
    for other in (replace(job, run_seed=8), replace(job, key="t/2/train_challenger")):
        assert rollouts_at(other, 1)[0].dropout not in masks
    assert rollouts_at(replace(job, steps_before=2), 1)[0].dropout == masks[2]


@pytest.mark.parametrize(
    "job", [challenger(Path("unused"), Path("unused"), 1.0), tiny_job(Path("unused"))], ids=["challenger", "solver"]
)
def test_without_the_setting_no_rollout_has_a_mask(job: TrainJob) -> None:
    assert {prompt.dropout for prompt in rollouts_at(job, 1)} == {None}
    if isinstance(job, ChallengerJob):
        masked = replace(job, vocabulary_retention=0.8)
        seeds = [[prompt.seed for prompt in rollouts_at(each, 1)] for each in (job, masked)]
        assert seeds[0] == seeds[1]
        assert len({fingerprint(each) for each in (job, masked, replace(masked, vocabulary_retention=0.7))}) == 3


def test_the_tiny_challenger_trains_two_steps_with_another_mask_each(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"steps": 2, "learning_rate": 1e-3, "sampling": Sampling(max_tokens=40)}
    job, tokens, free = challenger(tmp_path / "masked", MICRO, **changes), list[set[int]](), list[set[int]]()
    metrics = train_until(job, observed(tokens))
    train_until(challenger(tmp_path / "free", MICRO, 1.0, **changes), observed(free))
    engine = TransformersEngine(MICRO)
    kept = kept_tokens(engine.tokenizer)
    dropouts = [rollouts_at(job, step)[0].dropout for step in (1, 2)]
    dropped = [{*(~mask_of(dropout, 512, kept)).nonzero()[:, 0].tolist()} for dropout in dropouts if dropout]
    for own, other, its_tokens, without in zip(dropped, dropped[::-1], tokens, free, strict=True):
        assert not its_tokens & own
        assert its_tokens & other
        assert without & own
    # The trainer computes the same log-probabilities: those of the whole distribution.
    assert all(step["sampler_gap"] < 1e-4 for step in metrics)
    assert (job.work_dir / "final/model.safetensors").read_bytes() != (MICRO / "model.safetensors").read_bytes()


def test_a_resumed_training_has_the_masks_of_one_that_goes_through(tmp_path: Path, start: Path) -> None:
    whole, resumed = (challenger(tmp_path / name, start, checkpoint_every=1) for name in ("whole", "resumed"))
    run(whole, reward=reward_tokens)
    train_until(resumed, reward_tokens, 2)
    run(resumed, reward=reward_tokens)
    assert_equal(resumed, whole)


@pytest.mark.parametrize("ahead", [0, 1])
def test_an_application_draws_what_the_trainer_would(tmp_path: Path, start: Path, serve: FakeServe, ahead: int) -> None:
    """One step ahead, the first step's rollouts are the only ones by the same policy."""
    embedded, tokens = challenger(tmp_path / "embedded", start), list[set[int]]()
    run(embedded, reward=observed(tokens))
    job, others = by_application(challenger(tmp_path / "job", start), serve, ahead=ahead), list[set[int]]()
    run(job, reward=observed(others))
    assert others[0] == tokens[0]
    if not ahead:
        assert_equal(job, embedded)
