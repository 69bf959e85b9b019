"""The order that the embedded trainer sends to each worker of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from core.errors import CoevoError
from core.logs import Subject
from core.settings.trainers import LocalSettings
from trainers.base import TrainJob


@dataclass(frozen=True, slots=True)
class Order:
    """A job, with the settings and keys that its workers need."""

    job: TrainJob
    settings: LocalSettings
    # Environment variables with the keys of the services that the workers call. They are passed explicitly, because a
    # worker inherits its environment from the process that started Ray, not from the caller.
    keys: Mapping[str, str] = field(repr=False)
    subject: Subject  # what the workers' logs say that they work on
    id: str = field(default_factory=lambda: uuid4().hex)

    @property
    def metrics(self) -> Path:
        """The file to which the first worker appends a line of JSON after each step."""
        return self.job.work_dir / "metrics.jsonl"

    @property
    def stop(self) -> Path:
        """The stop file: once it exists, the workers stop after their current step. No other order has the same one: a
        process that has lost the job to another must not stop the workers of that."""
        return self.job.work_dir / f"stop-{self.id}"

    def heartbeat(self, rank: int) -> Path:
        """The file that the worker of this rank touches while it computes (heartbeat.py)."""
        return self.job.work_dir / f"heartbeat-{rank}-{self.id}"

    def log(self, rank: int) -> Path:
        """The file to which the worker of this rank logs."""
        return self.job.work_dir / f"worker-{rank}.log"


class WorkersFailed(CoevoError):
    """Raised when a job's workers have failed more often than they may be restarted; the message holds the causes."""
