"""Jobs for a fake EasyR1."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from local_tiny import tiny_job

from core.settings.trainers import EasyR1Settings
from trainers.base import TrainJob

FAKE = Path(__file__).parent / "fake_easyr1"
SETTINGS = EasyR1Settings(python=sys.executable, source=str(FAKE), gpus_per_node=2, update_micro_batch=1)


def job_in(work: Path, start: Path, **training: Any) -> TrainJob:
    return tiny_job(work, start, prompts_per_step=4, checkpoint_every=2, **training)


def misbehaving(job: TrainJob, words: str) -> TrainJob:
    """The job, with a file that makes the fake EasyR1 fail (`fail_while_saving=K`, once) or hang (`hang_at=K`)."""
    (job.work_dir / "easyr1").mkdir(parents=True)
    (job.work_dir / "easyr1" / "misbehave").write_text(words)
    return job
