"""The run that a campaign repeats: two iterations on the tiny shipped model, with labelled data as a branch.

Every stage that asks or trains a model has at least two batches or steps. They have 128 questions each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.check.start import find_run
from orchestrator.installation.home import Home
from storage.session import open_store
from trainers.micro.world import make_benchmark

NAME = "killed-again-and-again"  # a text that occurs nowhere else, since `contents_of` replaces it
PRESET, ITERATIONS = "demo", 2
_BENCHMARK_ITEMS_PER_LEVEL = 22  # of six levels: two batches
_TRAINING = {"steps": 2, "checkpoint_every": 1, "workers": 1}
_SMALL = {**_TRAINING, "prompts_per_step": 2, "rollouts_per_prompt": 4}


def write_benchmark(folder: Path) -> Path:
    """A benchmark of two batches in this folder."""
    file = folder / "benchmark.jsonl"
    problems = make_benchmark(seed=99, per_level=_BENCHMARK_ITEMS_PER_LEVEL)
    items = [
        {"id": str(i), "problem": problem.text, "answer": str(problem.answer)} for i, problem in enumerate(problems)
    ]
    file.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    return file


def overrides(seed: int, benchmark: Path, own_processes: bool) -> dict[str, Any]:
    """The settings of the run. With `own_processes`, it trains in processes of its own, which can be killed."""
    return {
        "seed": seed,
        "rollout_text": "all",
        "serving.batches": 1,
        "trainer.own_processes": own_processes,
        "trainer.sampler": "application",
        **{f"challenger.training.{name}": value for name, value in _TRAINING.items()},
        "challenger.training.rollouts_per_prompt": 8,
        **{f"solver.training.{name}": value for name, value in _SMALL.items()},
        "solver.training.steps": 3,  # so that the folder of the first one is removed
        "labelled.steps": 2,
        "labelled.file": "micro",
        "labelled.limit": 8,
        "dataset.candidates": 136,
        "dataset.votes": 3,
        "dataset.delta": 0.5,
        "evaluation.samples": 1,
        "evaluation.benchmark": str(benchmark),
    }


def exists(home: Home) -> bool:
    """Whether the run was created. The store is closed, so that the process may be forked."""
    store = open_store(home.database)
    found = find_run(store, NAME) is not None
    store.close()
    return found


def work(home: Home, settings: Mapping[bool, dict[str, Any]], own_processes: bool) -> None:
    """Begin the run, or go on with it, to its end; in this process, as `coevo run` and `coevo resume` do.

    `settings` are those without and with `own_processes`.
    """
    from orchestrator import flows  # Prefect reads its settings when it is imported
    from orchestrator.reporting.flow_process import retry_connecting

    retry_connecting()
    if exists(home):
        flows.co_evolve(run=NAME, preset="")
    else:
        flows.co_evolve(run=NAME, preset=PRESET, iterations=ITERATIONS, overrides=settings[own_processes])
