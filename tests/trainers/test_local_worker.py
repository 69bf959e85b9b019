"""What a worker reports of a job's steps."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from local_tiny import tiny_job

from core.logs import Subject
from core.settings.trainers import LocalSettings
from core.types import Scored
from trainers.local import worker
from trainers.local.order import Order
from trainers.local.ranks import Ranks
from trainers.local.rewards import Completions
from trainers.rewards import Rewarded


def reward_nobody(_step: int, completions: Completions) -> Rewarded:
    """All rollouts are undecided."""
    return Rewarded(
        [Scored(None, np.zeros(len(group)), undecided=tuple(range(len(group)))) for group in completions], {}
    )


def test_a_step_without_any_reward_does_not_end_the_training(tmp_path: Path, start: Path) -> None:
    job = tiny_job(tmp_path, start, steps=2)
    order = Order(job, LocalSettings(), {}, Subject("demo", 1, "train_solver"))
    job.work_dir.mkdir()
    no_heartbeat = SimpleNamespace(beat=lambda *_: None)  # a real one asks Ray where it is, which would start one
    changes: dict[str, Any] = {
        "make_reward": lambda *_: reward_nobody,
        "Grader": nullcontext,
        "Heartbeat": lambda _: no_heartbeat,
    }
    with patch.multiple(worker, **changes):
        worker.run_worker(order, Ranks(), torch.device("cpu"))
    steps = [json.loads(line) for line in order.metrics.read_text().splitlines()]
    assert [(step["dropped_share"], "reward_mean" in step) for step in steps] == [(1.0, False)] * 2
