"""Workers on the caller's own machine: Ray actors that wait for the next job when one is done.

A fresh process imports torch and transformers for ten seconds, in which a small job would have been trained. So the
processes stay for as long as their driver lives, and end with it, however it ends.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import uuid4

import ray
from ray.exceptions import RayActorError, RayTaskError

from trainers.local.order import Order, WorkersFailed

_LOOPBACK = "lo"


class TrainingWorker:
    """One process. Ray shows it under this name."""

    def __init__(self) -> None:
        import trainers.local.worker  # noqa: F401 (what takes the time)

        gc.collect()
        gc.freeze()  # modules stay for good: the collection after each job need not look at them again

    def ready(self) -> None:
        """Return when the process has started."""

    def train(self, order: Order, rank: int, size: int, meeting: str) -> None:
        """Be worker `rank` of `size`, which find each other through the file `meeting`."""
        import torch
        import torch.distributed as dist

        from trainers.local.ranks import Ranks
        from trainers.local.worker import work

        if size > 1:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK)  # nobody outside this machine takes part
            store = dist.FileStore(meeting, size)  # type: ignore[attr-defined]
            dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
        try:
            work(order, Ranks(rank, size), torch.device("cpu"))
        finally:
            if size > 1:
                dist.destroy_process_group()
            gc.collect()  # the models are large, and the next job may be far


class _Idle:
    """The processes that have nothing to do, of the Ray that the caller is connected to."""

    def __init__(self) -> None:
        self._driver, self._processes = "", list[Any]()

    def fill(self, count: int) -> None:
        """Start processes until `count` are idle. Does not wait for them."""
        driver = ray.get_runtime_context().get_job_id()
        if driver != self._driver:  # connected anew: Ray has ended the others
            self._driver, self._processes = driver, []
        # They reserve nothing: whoever asks for them has waited for his CPUs in the pool, and they idle between jobs.
        kind = ray.remote(num_cpus=0)(TrainingWorker)
        self._processes += [kind.remote() for _ in range(count - len(self._processes))]

    def take(self, count: int) -> list[Any]:
        """`count` processes that have started, the last used first; dead ones are replaced. Raises `RayActorError`
        where a new one cannot start."""
        self.fill(count)
        alive = [process for process in self._last(count) if _has_started(process)]
        self.fill(count - len(alive))
        fresh = self._last(count - len(alive))
        ray.get([process.ready.remote() for process in fresh])
        return alive + fresh

    def _last(self, count: int) -> list[Any]:
        return [self._processes.pop() for _ in range(count)]

    def give_back(self, processes: Iterable[Any]) -> None:
        self._processes += processes


def _has_started(process: Any) -> bool:
    try:
        ray.get(process.ready.remote())
    except RayActorError:
        return False
    return True


_idle = _Idle()


def warm_up(count: int) -> None:
    """Have `count` processes start now, in the background, for a job that is to come."""
    _idle.fill(count)


def train_here(order: Order, restarts: int) -> None:
    """Run a job's workers to their end. When one fails, all are started anew, at most `restarts` times, and go on from
    the newest step folder. Raises `WorkersFailed`."""
    for left in range(restarts, -1, -1):
        processes = _idle.take(order.job.training.workers)
        try:
            _train_together(processes, order)
        except (RayTaskError, RayActorError) as error:
            if not left:
                raise WorkersFailed(_cause(error)) from error
        else:
            _idle.give_back(processes)
            return


def _train_together(processes: Sequence[Any], order: Order) -> None:
    """Return when all have ended. When one fails, the others wait for it for ever: end them, and raise what it did."""
    meeting = f"{order.job.work_dir}/ranks-{uuid4().hex}"
    under_way = [process.train.remote(order, rank, len(processes), meeting) for rank, process in enumerate(processes)]
    try:
        while under_way:
            [first], under_way = ray.wait(under_way)
            ray.get(first)
    except BaseException:
        for process in processes:
            ray.kill(process)
        raise


def _cause(error: Exception) -> str:
    """What a worker raised, or how Ray says that it ended."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1] if isinstance(error, RayTaskError) else lines[0]
