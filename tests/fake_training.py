"""A fake training: it publishes what a trainer hands back, metrics, stored rollouts and a model, without learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from core.rollouts.scoring import learned_from
from core.types import Scored
from orchestrator.stages.context import Context
from trainers.base import SolverJob, TrainJob, TrainResult
from trainers.folders import appearing
from trainers.rollouts import Content, Sample, folder_in, write_step
from trainers.schedule import questions_at


def fake_training(context: Context, job: TrainJob, steps_before: int | None = None) -> TrainResult:
    """Every other rollout of a prompt is rewarded; a Solver's first one is undecided. The model's bytes name the job,
    and so do the optimiser's moments. Takes the place of `orchestrator.stages.training.running.run_training`, which
    waits for Ray."""
    del context, steps_before
    steps = range(1, job.training.steps + 1)
    for step in steps:
        _write_rollouts(job, step)
    metrics = tuple({"step": step, "reward_mean": 0.5, "kl": 0.01 * step, "entropy": 0.6} for step in steps)
    optimiser = _folder(job.work_dir / "optimiser", f"moments of {job.key}") if job.rounds else None
    return TrainResult(_folder(job.work_dir / "final", job.key), len(steps), metrics, optimiser)


def _folder(folder: Path, content: str) -> Path:
    """Made as the real one is: a process that was suspended may go on while another one trains in the same folder."""
    if not folder.exists():
        with appearing(folder) as unfinished:
            (unfinished / "model.safetensors").write_text(content)
            (unfinished / "config.json").write_text("{}")
    return folder


def _write_rollouts(job: TrainJob, step: int) -> None:
    prompts, size = job.training.prompts_per_step, job.rollouts
    rewards, undecided = np.arange(size, dtype=np.float64) % 2, (0,) if isinstance(job, SolverJob) else ()
    parts = tuple({"undecided": 1.0} if i in undecided else {} for i in range(size))
    scored = Scored("3", rewards, rollout_parts=parts, undecided=undecided)
    members = learned_from(scored, range(job.trained), job.reward)
    advantages = dict(zip(members, job.reward.advantages(rewards[members]).tolist(), strict=True))
    samples = [Sample(f"rollout {i} of {job.key}", 3, "stop", 0.5, advantages.get(i)) for i in range(size)]
    questions: list[Any] = questions_at(job, step) if isinstance(job, SolverJob) else [None] * prompts
    contents = [
        [Content(question and question.question_id, question.text if question else "What is 1 + 1?")] * size
        for question in questions
    ]
    stored = range(min(prompts, job.stored_prompts))
    write_step(folder_in(job.work_dir), step, stored, [scored] * prompts, contents, [samples] * prompts)
