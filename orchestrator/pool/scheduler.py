"""The rule of the worker pool: which trainings begin when several runs share GPUs or CPUs.

Any process that waits applies the rule to all of them, from the queue in the store (`slot.py`). No process owns the
queue, so none can die and take it along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.types import ResourceKind


@dataclass(frozen=True, slots=True)
class PoolJob:
    """A training that waits for `units` CPUs or GPUs, or has them."""

    key: str
    kind: ResourceKind
    units: float
    used: float  # unit-seconds that its run has had from the pool so far
    since: float  # when it began to wait, or to run: seconds
    running: bool


def to_start(jobs: Sequence[PoolJob], capacity: Mapping[ResourceKind, float]) -> list[str]:
    """The keys of the jobs that begin now, given all jobs and what the cluster has of each kind for trainings.

    The run that has used least goes first, then the job that has waited longest. The first job that does not fit holds
    back all jobs behind it, so that a large job does not starve.
    """
    started = list[str]()
    for kind in sorted({job.kind for job in jobs}):
        of_kind = [job for job in jobs if job.kind == kind]
        free = capacity.get(kind, 0.0) - sum(job.units for job in of_kind if job.running)
        waiting = (job for job in of_kind if not job.running)
        for job in sorted(waiting, key=lambda job: (job.used, job.since, job.key)):
            if job.units > free:
                break
            started.append(job.key)
            free -= job.units
    return started
