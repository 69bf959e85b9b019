"""A training of the demo's Solver, on questions of the tiny world."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.grading.grader import Grader
from core.settings.parsing import load_config
from core.settings.trainers import LocalSettings
from core.types import Checkpoint
from orchestrator.installation.home import MICRO_MODEL, PRESETS
from trainers.base import SolverJob, TrainQuestion
from trainers.local.loop import train
from trainers.local.ranks import Ranks
from trainers.local.rewards import make_reward
from trainers.local.state import Metrics
from trainers.micro.world import make_benchmark


def solver_job(work_dir: Path, per_level: int, model: Path = MICRO_MODEL, **training: Any) -> SolverJob:
    """A training of one worker with these settings instead of the demo's, on `per_level` questions of six levels."""
    solver = load_config(PRESETS / "demo.toml").solver
    problems = make_benchmark(seed=1, per_level=per_level)
    return SolverJob(
        key="1/train_solver",
        run_seed=1,
        start=base_checkpoint(model),
        training=solver.training.model_copy(update={"workers": 1, **training}),
        reward=solver.reward,
        questions=tuple(
            TrainQuestion(f"q{index}", problem.text, str(problem.answer)) for index, problem in enumerate(problems)
        ),
        work_dir=work_dir,
    )


def base_checkpoint(model: Path) -> Checkpoint:
    """The checkpoint of a model that no store knows."""
    return Checkpoint("bench/base/0", "bench", "base", 0, 0, str(model), "0" * 64, None)


def train_here(
    job: SolverJob,
    report: Callable[[Metrics], None],
    device: str = "cpu",
    settings: LocalSettings = LocalSettings(),  # noqa: B008 (frozen)
) -> None:
    """Train in this process. `report` gets the metrics of each step."""
    with Grader() as grader:
        reward = make_reward(job, Ranks(), grader)
        train(job, reward, ranks=Ranks(), device=device, report=report, stopped=lambda: False, settings=settings)
