"""Runs the training loop in this process, as one worker and with a reward that needs no service, if none is given."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import numpy as np
from local_tiny import without_timings

from core.types import Scored
from trainers.base import TrainJob
from trainers.local.loop import train
from trainers.local.ranks import Ranks
from trainers.local.rewards import Completions, Reward
from trainers.local.state import Metrics
from trainers.rewards import Rewarded

# Makes processes by forking one that has imported what they need, which takes seconds.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["trainers.local.loop", "transformers.models.qwen3.modeling_qwen3"])
WARMED: dict[str, Any] = {"schedule": "cosine", "warmup_steps": 1}  # the shares of four steps: 0, 1, 3/4, 1/4


def reward_sevens(step: int, completions: Completions) -> Rewarded:
    """A reward of 1 for an answer of 7."""
    groups = [Scored("7", np.array([float("{7}" in completion.text) for completion in group])) for group in completions]
    return Rewarded(groups, {"unparsed_share": 0.0})


def run(
    job: TrainJob,
    report: Callable[[Metrics], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
    reward: Reward = reward_sevens,
    ranks: Ranks | None = None,
    **more: Any,
) -> None:
    train(job, reward, ranks=ranks or Ranks(), device="cpu", report=report, stopped=stopped, **more)


def train_until(
    job: TrainJob, reward: Reward, steps: int | None = None, ranks: Ranks | None = None, **more: Any
) -> list[Metrics]:
    """Train until the job's end, or until it has done `steps`; returns the metrics that rank 0 reports."""
    reported: list[Metrics] = []
    run(job, reported.append, lambda: len(reported) == steps, reward, ranks, **more)
    return without_timings(reported)


def reward_tokens(step: int, completions: Completions) -> Rewarded:
    """A reward that differs between rollouts, whatever their texts are."""
    groups = [[sum(completion.tokens) % 7 / 7 for completion in group] for group in completions]
    return Rewarded([Scored(None, np.array(rewards)) for rewards in groups], {})
