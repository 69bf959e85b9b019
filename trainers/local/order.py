"""What the caller of the embedded trainer gives each worker of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import CoevoError
from core.settings.trainers import LocalSettings
from trainers.base import TrainJob


@dataclass(frozen=True, slots=True)
class Order:
    """A job, and what its workers need besides."""

    job: TrainJob
    settings: LocalSettings
    # Environment variables: the keys of services that the workers ask. A worker has the environment of who started Ray.
    keys: Mapping[str, str] = field(repr=False)

    @property
    def metrics(self) -> Path:
        """The file to which the first worker adds a line of JSON after each step."""
        return self.job.work_dir / "metrics.jsonl"

    @property
    def stop(self) -> Path:
        """A file: where there is one, the workers stop after the step they are in."""
        return self.job.work_dir / "stop"


class WorkersFailed(CoevoError):
    """A job's workers failed, as often as they may; the message is the last line of what each of them raised."""
