"""Workers on the caller's own machine: Ray actors that stay after a job and wait for the next one.

A new process needs ten seconds to import torch and transformers, in which a small job could be trained. So the
processes stay as long as their driver lives. They end when it ends, however that happens.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import ray
from ray.exceptions import RayActorError, RayTaskError

from core.processes.imports import collection_paused
from trainers.local.order import Order, WorkersFailed

_LOOPBACK = "lo"


class TrainingWorker:
    """One worker process. Ray's tools show it under this name."""

    def __init__(self) -> None:
        with collection_paused():
            import trainers.local.worker  # noqa: F401 (the slow import that the process stays alive for)

    def ready(self) -> None:
        """Return when the process has started."""

    def train(self, order: Order, rank: int, size: int, rendezvous: str) -> None:
        """Do the work of rank `rank` of `size`. The workers find each other through the file `rendezvous`."""
        import torch
        import torch.distributed as dist

        from trainers.local.ranks import Ranks
        from trainers.local.worker import run_worker

        if size > 1:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK)  # all workers are on this machine
            store = dist.FileStore(rendezvous, size)  # type: ignore[attr-defined]
            dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
        try:
            run_worker(order, Ranks(rank, size), torch.device("cpu"))
        finally:
            if size > 1:
                dist.destroy_process_group()
            gc.collect()  # frees the models, which are large, because the next job may start much later


class _Idle:
    """The idle worker processes, on the Ray that the caller is connected to."""

    def __init__(self) -> None:
        self._driver, self._processes = ("", ""), list[Any]()

    def fill(self, count: int) -> None:
        """Start processes until `count` are idle. Does not wait for them."""
        context = ray.get_runtime_context()
        driver = context.get_node_id(), context.get_job_id()  # the ids of jobs begin anew in every cluster
        if driver != self._driver:  # the caller has connected anew, and Ray has ended the earlier processes
            self._driver, self._processes = driver, []
        # The processes reserve no CPUs on Ray: they idle between jobs, and the CPUs of a job are reserved in the pool.
        actor_class = ray.remote(num_cpus=0)(TrainingWorker)
        self._processes += [actor_class.remote() for _ in range(count - len(self._processes))]

    def take(self, count: int) -> list[Any]:
        """Take `count` processes that have started, the most recently used first; dead ones are replaced.

        Raises `RayActorError` if a new process cannot start.
        """
        self.fill(count)
        alive = []
        for process in self._pop(count):
            with suppress(RayActorError):
                ray.get(process.ready.remote())
                alive.append(process)
        self.fill(count - len(alive))
        new = self._pop(count - len(alive))
        ray.get([process.ready.remote() for process in new])
        return alive + new

    def _pop(self, count: int) -> list[Any]:
        return [self._processes.pop() for _ in range(count)]

    def give_back(self, processes: Iterable[Any]) -> None:
        self._processes += processes


_idle = _Idle()


def warm_up(count: int) -> None:
    """Start processes in the background until `count` are idle, so that a later job need not wait for them."""
    _idle.fill(count)


def train_here(order: Order, restarts: int) -> None:
    """Run a job's workers to their end.

    If a worker fails, all are started anew and continue from the newest step folder, at most `restarts` times. Raises
    `WorkersFailed` after that.
    """
    for attempts_left in range(restarts, -1, -1):
        processes = _idle.take(order.job.training.workers)
        try:
            _train_together(processes, order)
        except (RayTaskError, RayActorError) as error:
            if not attempts_left:
                # The last line of the exception that a worker raised, or Ray's first one about how its process ended.
                lines = [line for line in str(error).splitlines() if line.strip()]
                raise WorkersFailed(lines[-1] if isinstance(error, RayTaskError) else lines[0]) from error
        else:
            _idle.give_back(processes)
            return


def _train_together(processes: Sequence[Any], order: Order) -> None:
    """Run `order` on all `processes`, and return when they are done.

    If one fails, the others would wait for it for ever, so all are killed and its exception is raised.
    """
    rendezvous = f"{order.job.work_dir}/ranks-{uuid4().hex}"
    pending = [process.train.remote(order, rank, len(processes), rendezvous) for rank, process in enumerate(processes)]
    try:
        while pending:
            [done], pending = ray.wait(pending)
            ray.get(done)
    except BaseException:
        for process in processes:
            ray.kill(process)
        raise
