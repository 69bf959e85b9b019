"""Reads a job's progress from the files that its workers write (checkpoints.py), without importing torch."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.settings.trainers import LocalSettings
from trainers.base import ChallengerJob, SolverJob, TrainError, TrainJob
from trainers.folders import remove
from trainers.schedule import learning_rate_at

STATE = "state.json"
_STEP = re.compile(r"step_(\d+)")
_KEPT = 2
_DEFAULTS = LocalSettings()

Metrics = dict[str, float]


@dataclass(frozen=True, slots=True)
class State:
    """The progress of a job at one step; state.json holds these fields."""

    job: str  # the job's fingerprint
    step: int
    metrics: tuple[Metrics, ...]  # one dictionary per step so far


def fingerprint(job: TrainJob, settings: LocalSettings = _DEFAULTS) -> str:
    """A hash of everything that must be the same when a job is resumed.

    Settings that only distribute the work over memory and machines are left out, so they may change.
    """
    excluded = {"micro_batch", "workers", "sharded", "checkpoint_every"}
    parts: list[Any] = [
        settings.model_dump(include={"precision", "lora", "importance_cap"}),
        [job.key, job.role, job.run_seed, job.start.id, job.start.sha256],
        job.training.model_dump(exclude=excluded),
        job.reward.model_dump(),
        [
            job.reference and job.reference.sha256,
            job.steps_before,
            job.guard and job.guard.model_dump(),
            asdict(job.history),
            job.rounds and [job.rounds.optimiser and job.rounds.optimiser.sha256],
            learning_rate_at(job, job.training.steps),  # which depends on the number of rounds only with a cosine
        ],
        *([job.sampler.ahead] if job.sampler and job.sampler.ahead else []),
    ]
    if isinstance(job, ChallengerJob) and (job.earlier or job.exact):
        parts += [job.earlier, job.exact]
    if isinstance(job, ChallengerJob) and job.vocabulary_retention < 1:
        parts.append(["vocabulary_retention", job.vocabulary_retention])
    if isinstance(job, SolverJob):
        parts += [job.signals.model_dump(), [asdict(question) for question in job.questions]]
    if isinstance(job, ChallengerJob):
        parts.append(job.solver.checkpoint)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def newest_step(job: TrainJob, settings: LocalSettings = _DEFAULTS) -> Path | None:
    """The newest step folder, from which the job resumes; None if there is none.

    Raises `TrainError` if the folder belongs to another job.
    """
    folders = step_folders(job.work_dir)
    if not folders:
        return None
    actual, expected = read_state(folders[-1]).job, fingerprint(job, settings)
    if actual != expected:
        raise TrainError(
            f"{job.key}: {folders[-1]} belongs to another job: expected fingerprint {expected[:12]}, got {actual[:12]}"
        )
    return folders[-1]


def read_state(folder: Path) -> State:
    tree = json.loads((folder / STATE).read_text(encoding="utf-8"))
    return State(tree["job"], tree["step"], tuple(tree["metrics"]))


def final_folder(work_dir: Path) -> Path:
    return work_dir / "final"


def optimiser_folder(work_dir: Path) -> Path:
    return work_dir / "optimiser"


def ahead_file(work_dir: Path, step: int) -> Path:
    """The file with the rollouts of step `step`, if they were sampled before the step ahead of it was saved."""
    return work_dir / "ahead" / f"{step}.json"


def step_folders(work_dir: Path) -> list[Path]:
    """The step folders in `work_dir`, the oldest first."""
    numbered = [(int(m[1]), path) for path in work_dir.glob("step_*") if (m := _STEP.fullmatch(path.name))]
    return [path for _, path in sorted(numbered)]


def remove_old_steps(work_dir: Path) -> None:
    """Remove all but the newest two step folders, with the rollouts that were sampled ahead.

    Only the caller of the training does so, while it has the job. After it has lost the job, the new caller's workers
    may be reading the older folders.
    """
    for old in step_folders(work_dir)[:-_KEPT]:
        ahead_file(work_dir, read_state(old).step + 1).unlink(missing_ok=True)
        remove(old)
