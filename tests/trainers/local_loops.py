"""Runs the training loop in this process, with one worker and a reward that needs no service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from core.types import Scored
from trainers.base import TrainJob
from trainers.local.loop import train
from trainers.local.ranks import Ranks
from trainers.local.rewards import Completions
from trainers.local.state import Metrics
from trainers.rewards import Rewarded

WARMED: dict[str, Any] = {"schedule": "cosine", "warmup_steps": 1}  # the shares of four steps: 0, 1, 3/4, 1/4


def reward_sevens(step: int, completions: Completions) -> Rewarded:
    """A reward of 1 for an answer of 7."""
    groups = [Scored("7", np.array([float("{7}" in completion.text) for completion in group])) for group in completions]
    return Rewarded(groups, {"unparsed_share": 0.0})


def run(
    job: TrainJob,
    report: Callable[[Metrics], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    train(job, reward_sevens, ranks=Ranks(), device="cpu", report=report, stopped=stopped)
