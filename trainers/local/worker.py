"""What one worker of a job does, in whichever process it is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from transformers.utils.logging import disable_progress_bar

from core.grading.grader import Grader
from trainers.local.loop import train
from trainers.local.order import Order
from trainers.local.ranks import Ranks
from trainers.local.rewards import make_reward
from trainers.local.state import Metrics


def work(order: Order, ranks: Ranks, device: torch.device) -> None:
    """Train to the job's end, or until somebody asks the workers to stop. Raises what `train` raises."""
    disable_progress_bar()  # of loading and saving: they would land in the caller's terminal
    if device.type == "cpu":
        torch.set_num_threads(1)  # sums in one order: the same bits on every run
    else:
        torch.cuda.set_device(device)  # where nccl gathers what is not a tensor
    with _environment(order.keys), Grader() as grader, order.metrics.open("a", encoding="utf-8") as file:

        def report(metrics: Metrics) -> None:
            file.write(json.dumps(metrics) + "\n")
            file.flush()

        train(
            order.job,
            make_reward(order.job, ranks, grader),
            ranks=ranks,
            device=str(device),
            report=report,
            stopped=order.stop.exists,
            settings=order.settings,
        )


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Have `variables` in the environment for the block: the process may work for another job afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
