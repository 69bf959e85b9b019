"""Measures what a step costs more if an application samples its rollouts: Serve, HTTP and the swap of the weights.

Both ways train the demo's Solver in turns, with one engine on one thread each, and draw the same rollouts.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from transformers.utils.logging import disable_progress_bar

from benchmarks.demo_solver import solver_job, train_here
from benchmarks.services import one_replica, own_ray, published
from orchestrator.installation.home import MICRO_MODEL
from orchestrator.serving.checkpoints import serve_checkpoints
from services.inference import access
from trainers.base import SamplerService
from trainers.local.state import Metrics

_STEPS, _ROUNDS = 6, 2  # steps of a training, of which the first is not counted
_QUESTIONS = 240
_PHASES = ("sample_seconds", "reward_seconds", "update_seconds")


def run() -> dict[str, Any]:
    """{overhead_ms, overhead_share, swap_ms, swap_kb, sample_ms: {embedded, application}, step_ms, steps}: medians.

    The overhead is the swap and what sampling takes longer, and its share is that of the embedded sampler's step.
    """
    torch.set_num_threads(1)
    disable_progress_bar()
    steps: dict[str, list[Metrics]] = {"embedded": [], "application": []}
    with own_ray() as (home, services), tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder:
        base = published(home, MICRO_MODEL, "bench")
        serve_checkpoints(services, {"solver": base}, one_replica(home, "embedded"))
        home.memory.mkdir(parents=True, mode=0o700)
        service = SamplerService(
            services.endpoint("solver"), "solver", services.dashboard_url, "bench", "float32", home.memory, True, True
        )
        with patch.dict(os.environ, {access.RAY_TOKEN: services.ray_token}):
            for turn in range(_ROUNDS):
                for sampler, of_sampler in steps.items():
                    work_dir = Path(folder) / f"{sampler}-{turn}"
                    job = solver_job(work_dir, _QUESTIONS // 6, steps=_STEPS, checkpoint_every=_STEPS)
                    job = replace(job, start=base, sampler=service if sampler == "application" else None)
                    metrics = list[Metrics]()
                    train_here(job, metrics.append)
                    of_sampler.extend(metrics[1:])
    assert [step["reward_mean"] for step in steps["embedded"]] == [step["reward_mean"] for step in steps["application"]]
    sampling = {name: _median_ms(of_sampler, "sample_seconds") for name, of_sampler in steps.items()}
    swap, step = _median_ms(steps["application"], "swap_seconds"), _median_ms(steps["embedded"], *_PHASES)
    overhead = swap + sampling["application"] - sampling["embedded"]
    return {
        "overhead_ms": round(overhead),
        "overhead_share": round(overhead / step, 4),
        "swap_ms": round(swap),
        "swap_kb": round(steps["application"][0]["swap_bytes"] / 1000),
        "sample_ms": {name: round(median) for name, median in sampling.items()},
        "step_ms": round(step),
        "steps": len(steps["application"]),
    }


def _median_ms(steps: list[Metrics], *names: str) -> float:
    return 1000 * statistics.median(sum(step[name] for name in names) for step in steps)
