"""One step ahead: the application samples the next step's rollouts while the trainer updates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_application import TOKEN, assert_equal, by_application, metrics_of, run_until, train_on
from local_loops import PROCESSES, reward_tokens, run, train_until
from local_tiny import tiny_job
from two_ranks import Pair

from core.processes.faultpoints import FaultPoint
from core.types import Scored
from services.inference import access
from services.inference.client import InferenceClient
from tests.fake_serve import FakeServe
from trainers.base import TrainJob
from trainers.local.rewards import Completions
from trainers.local.state import fingerprint, remove_old_steps
from trainers.rewards import Rewarded
from trainers.schedule import rollouts_at


def two_policies(job: TrainJob, serve: FakeServe, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs the job; returns the number of optimiser steps that the policy had done which sampled each step."""
    asked, ask = dict[int, int](), InferenceClient.generate

    def observed(client: InferenceClient, prompts: Any, checkpoint: str) -> Any:
        step = next(step for step in range(1, 5) if rollouts_at(job, step)[0] in prompts)
        asked[step] = int(checkpoint.partition("@")[2].partition("-")[0])
        return ask(client, prompts, checkpoint)

    monkeypatch.setattr(InferenceClient, "generate", observed)
    run(job)
    monkeypatch.undo()
    return [asked[step] for step in sorted(asked)]


def test_one_step_ahead_the_rollouts_are_by_the_policy_before_the_last_step(
    tmp_path: Path, start: Path, serve: FakeServe, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact, ahead = (by_application(tiny_job(tmp_path / str(n), start), serve, ahead=n) for n in (0, 1))
    monkeypatch.setenv(access.RAY_TOKEN, TOKEN)
    assert two_policies(exact, serve, monkeypatch) == [0, 1, 2, 3]
    monkeypatch.setenv(access.RAY_TOKEN, TOKEN)
    assert two_policies(ahead, serve, monkeypatch) == [0, 0, 1, 2]
    assert [step["staleness"] for step in metrics_of(ahead)] == [0, 1, 1, 1]
    assert "staleness" not in metrics_of(exact)[0]
    gaps = [step["sampler_gap"] for step in metrics_of(ahead)]
    assert gaps[0] < 1e-5 < min(gaps[1:])
    first, second = (metrics_of(job)[0] for job in (exact, ahead))
    assert second == {**first, "staleness": 0}


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("point", ["weights written", "weights swapped", "step ended"])
def test_one_step_ahead_a_killed_training_ends_with_the_same_bits(
    tmp_path: Path, start: Path, serve: FakeServe, point: FaultPoint, every: int
) -> None:
    whole, killed = (
        by_application(tiny_job(tmp_path / name, start, checkpoint_every=every), serve, ahead=1)
        for name in ("whole", "killed")
    )
    run(whole)
    worker = PROCESSES.Process(
        target=run_until, args=(killed, point, f"{killed.key}/{3 if point == 'step ended' else 2}")
    )
    worker.start()
    worker.join()
    assert worker.exitcode == 9
    run(killed)
    assert_equal(killed, whole)


@pytest.mark.parametrize("sharded", [False, True])
def test_one_step_ahead_two_workers_share_the_asking(
    tmp_path: Path, start: Path, serve: FakeServe, pair: Pair, sharded: bool
) -> None:
    jobs = [
        by_application(tiny_job(tmp_path / name, start, workers=2, sharded=sharded, checkpoint_every=1), serve, ahead=1)
        for name in ("first", "second")
    ]
    for job in jobs:
        pair(train_on, job)
    assert_equal(*jobs)
    assert [step["staleness"] for step in metrics_of(jobs[0])] == [0, 1, 1, 1]


def test_what_was_sampled_ahead_of_removed_steps_is_removed_with_them(
    tmp_path: Path, start: Path, serve: FakeServe
) -> None:
    job = by_application(tiny_job(tmp_path, start, checkpoint_every=1), serve, ahead=1)
    run(job)
    assert sorted(path.name for path in (job.work_dir / "ahead").iterdir()) == ["2.json", "3.json", "4.json"]
    remove_old_steps(job.work_dir)
    assert [path.name for path in (job.work_dir / "ahead").iterdir()] == ["4.json"]
    assert fingerprint(job) != fingerprint(replace(job, sampler=None))


@pytest.mark.parametrize("stopped", [2, 3])
def test_one_step_ahead_a_resumed_training_refills_from_the_policy_as_it_is(
    tmp_path: Path, start: Path, serve: FakeServe, stopped: int
) -> None:
    """The last step has no next one to sample, and asks for further prompts all the same."""
    changes: dict[str, Any] = {"refill": 3, "rollouts_per_prompt": 2, "checkpoint_every": 1}
    whole, resumed = (
        by_application(tiny_job(tmp_path / name, start, **changes), serve, ahead=1) for name in ("whole", "resumed")
    )
    run(whole, reward=reward_evenly)
    train_until(resumed, reward_evenly, stopped)
    before = len(serve.swapped)
    run(resumed, reward=reward_evenly)
    assert_equal(resumed, whole)
    assert metrics_of(whole)[-1]["refilled"] == 3
    again = [served.checkpoint.partition("@")[2].partition("-")[0] for _, served in serve.swapped[before:]]
    assert again == [str(done) for done in range(stopped, 4)]


def reward_evenly(step: int, completions: Completions) -> Rewarded:
    """No group but the first teaches anything."""
    first, *others = reward_tokens(step, completions).groups
    return Rewarded([first, *(Scored(None, np.ones(len(scored.rewards))) for scored in others)], {})
