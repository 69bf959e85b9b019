"""The work of one worker of a job, in a process of either kind (processes.py, ray_train.py)."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from transformers.utils.logging import disable_default_handler, disable_progress_bar, enable_propagation

from core import logs
from core.grading.grader import Grader
from trainers.local.heartbeat import Heartbeat
from trainers.local.loop import train
from trainers.local.order import Order
from trainers.local.ranks import Ranks
from trainers.local.rewards import make_reward
from trainers.local.state import Metrics

_log = logging.getLogger(__name__)


def run_worker(order: Order, ranks: Ranks, device: torch.device) -> None:
    """Train to the job's end, or until the stop file appears. Raises what `train` raises."""
    disable_progress_bar()  # the bars of loading and saving would be lines of the log
    if device.type == "cpu":
        torch.set_num_threads(1)  # a fixed order of sums, so that every run gives the same bits
    else:
        torch.cuda.set_device(device)  # the device on which nccl exchanges Python objects
    with (
        _environment(order.keys),
        _logged(order, ranks),
        Grader() as grader,
        order.metrics.open("a", encoding="utf-8") as file,
    ):

        def report(metrics: Metrics) -> None:
            file.write(json.dumps(metrics) + "\n")
            file.flush()
            reward = metrics.get("reward_mean", math.nan)  # a step whose rollouts are all undecided has none
            _log.info("step %d of %d, reward %.3f", metrics["step"], order.job.training.steps, reward)

        train(
            order.job,
            make_reward(order.job, ranks, grader),
            ranks=ranks,
            device=str(device),
            report=report,
            stopped=order.stop.exists,
            beat=Heartbeat(order.heartbeat(ranks.rank)).beat,
            settings=order.settings,
        )


@contextmanager
def _logged(order: Order, ranks: Ranks) -> Iterator[None]:
    """Have the process log to standard error, which Ray keeps, and to the job's folder, where the caller reads it."""
    logs.configure("trainer", order.keys.values())
    disable_default_handler()  # transformers has one of its own
    enable_propagation()
    to_file, root = logs.file_handler(order.log(ranks.rank)), logging.getLogger()
    root.addHandler(to_file)
    try:
        with logs.working_on(order.subject):
            _log.info("worker %d of %d begins", ranks.rank, ranks.size)
            try:
                yield
            except Exception:
                _log.exception("worker %d failed", ranks.rank)
                raise
    finally:
        root.removeHandler(to_file)
        to_file.close()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set the environment `variables` for the block only, because the process may do another job afterwards."""
    previous = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
