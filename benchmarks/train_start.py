"""Measures how long the embedded trainer takes until its first step starts, on one machine with one worker.

`python -m benchmarks.train_start ADDRESS` measures it on a running Ray cluster.
"""

from __future__ import annotations

import json
import logging
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray

from benchmarks.demo_solver import solver_job
from benchmarks.services import own_ray, printed_by
from trainers.base import TrainJob
from trainers.local.trainer import LocalTrainer

_JOBS = 3
_STEP = ("sample_seconds", "reward_seconds", "update_seconds")


def run() -> dict[str, Any]:
    """{cold_s, warm_s, jobs}: the first job of a driver, whose process must start; the median of `jobs` later ones."""
    with own_ray() as (home, services):
        address = services.ray_address
        seconds: dict[str, Any] = printed_by("benchmarks.train_start", address, home=home, services=services)
    return seconds


def main(address: str) -> None:
    ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder:
        cold, *warm = (
            _seconds_to_first_step(solver_job(Path(folder) / str(number), 16, steps=1)) for number in range(1 + _JOBS)
        )
    print(json.dumps({"cold_s": round(cold, 2), "warm_s": round(statistics.median(warm), 2), "jobs": _JOBS}))


def _seconds_to_first_step(job: TrainJob) -> float:
    """The time from the call of `train` to the start of the first step: the step's end minus its duration."""
    seconds: list[float] = []

    def note(step: int, metrics: dict[str, float]) -> None:
        if step == 1:
            seconds.append(time.perf_counter() - start - sum(metrics[name] for name in _STEP))

    start = time.perf_counter()
    LocalTrainer().train(job, note)
    return seconds[0]


if __name__ == "__main__":
    main(sys.argv[1])
