"""The worker pool: which training may begin, and which must give its place up, when several runs share GPUs or CPUs.

Whoever waits decides for all, from the queue in the store (orchestrator/pool/slot.py): there is no process that could
die and take the queue with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from core.types import ResourceKind


@dataclass(frozen=True, slots=True)
class PoolJob:
    """A training that waits for `units` CPUs or GPUs, or has them."""

    key: str
    kind: ResourceKind
    units: float
    priority: int  # the greater goes first
    used: float  # unit-seconds that its run has had of the pool before
    since: float  # when it began to wait, or to run: seconds
    running: bool
    preempted: bool = False  # told to give its place up at its next checkpoint


@dataclass(frozen=True, slots=True)
class Decision:
    """The keys of the jobs that begin now, and of those that are to stop at their next checkpoint."""

    start: list[str] = field(default_factory=list)
    preempt: list[str] = field(default_factory=list)


def decide(jobs: Sequence[PoolJob], capacity: Mapping[ResourceKind, float]) -> Decision:
    """What is to happen, given all jobs and what the cluster has of each kind for training.

    The highest priority first; among equals the run that has had least, then who has waited longest. The first that
    does not fit holds back all behind it, so that no large job starves. If jobs of lower priority are in its way and
    enough of them could be stopped, they are, the lowest and youngest first.
    """
    decision = Decision()
    for kind in sorted({job.kind for job in jobs}):
        own = [job for job in jobs if job.kind == kind]
        running = [job for job in own if job.running]
        free = capacity.get(kind, 0.0) - sum(job.units for job in running)
        for job in _in_order(own):
            if job.units <= free:
                decision.start.append(job.key)
                free -= job.units
                continue
            leaving = sum(other.units for other in running if other.preempted)
            decision.preempt.extend(_in_its_way(job, running, job.units - free - leaving))
            break
    return decision


def _in_order(jobs: Sequence[PoolJob]) -> Iterator[PoolJob]:
    waiting = [job for job in jobs if not job.running]
    yield from sorted(waiting, key=lambda job: (-job.priority, job.used, job.since, job.key))


def _in_its_way(job: PoolJob, running: Sequence[PoolJob], missing: float) -> list[str]:
    """The lowest and youngest running jobs whose units make up for what is missing; none where all would not do."""
    lower = [other for other in running if other.priority < job.priority and not other.preempted]
    chosen = []
    for other in sorted(lower, key=lambda one: (one.priority, -one.since, one.key)):
        if missing <= 0:
            break
        chosen.append(other.key)
        missing -= other.units
    return chosen if missing <= 0 else []
