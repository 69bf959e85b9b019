"""The embedded trainer: GRPO in plain torch, in processes on the Ray that the caller is connected to."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import ray
from ray.exceptions import RayError

from core import logs
from core.files import whole_lines
from core.settings.trainers import LocalSettings
from core.types import Checkpoint, ResourceKind
from services.inference.keys import keys_of, own_keys
from trainers.base import OnStep, SolverJob, TrainError, TrainJob, TrainResult
from trainers.folders import remove_unfinished
from trainers.last_lines import log_last_lines
from trainers.local import processes
from trainers.local.heartbeat import Watchdog
from trainers.local.order import Order, WorkersFailed
from trainers.local.state import final_folder, newest_step, optimiser_folder, read_state, remove_old_steps

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class LocalTrainer:
    """Trains in `job.training.workers` processes, each with one GPU or with one CPU thread: `kind_of`.

    On the CPUs of one machine the processes outlive the job and serve the caller's next one (processes.py). Elsewhere
    Ray Train starts and ends them (ray_train.py). Without `settings.own_processes` there are none: the only worker is a
    thread of the caller's process. The workers keep everything in `job.work_dir`, which the caller and all workers must
    be able to reach. When a worker is lost, all workers start again from the newest step folder; a later call with the
    same job does so, too. Workers that hang are killed, and then are lost ones (heartbeat.py). Each worker holds the
    complete model or, with `job.training.sharded`, a share of it (sharding.py). Step folders do not depend on that, so
    a job may continue with another number of workers, sharded or not.

    For Ray Train, Ray must run with its dashboard (the process, not the page). Without the state API that the dashboard
    serves, a monitor process that Ray Train leaves on the cluster writes a warning every second, and it stays for ever
    when this process is killed.
    """

    settings: LocalSettings = field(default_factory=LocalSettings)
    cpus_per_worker: float = 1.0  # that the cluster must have; Ray Train also reserves them
    gpus_per_worker: float = 1.0  # less where an application has the rest
    restarts: int = 1  # how often the workers are restarted after one is lost or fails

    def train(self, job: TrainJob, progress: OnStep) -> TrainResult:
        """Run `job` to its end. `progress` is called in this thread, once for each step that was not yet on disk.

        If `progress` raises, or the wait is interrupted, the workers stop after their current step, and the exception
        is passed on. Raises `TrainError`.
        """
        job = replace(
            job,
            work_dir=job.work_dir.resolve(),  # workers have other working directories
            start=_resolved(job.start),
            reference=job.reference and _resolved(job.reference),
            rounds=job.rounds
            and replace(job.rounds, optimiser=job.rounds.optimiser and _resolved(job.rounds.optimiser)),
        )
        _refuse(job)
        job.work_dir.mkdir(parents=True, exist_ok=True)
        remove_unfinished(job.work_dir)
        folder = newest_step(job, self.settings)
        steps_done = read_state(folder).step if folder else 0
        if not final_folder(job.work_dir).exists():
            self._run(job, steps_done, progress)
        if not final_folder(job.work_dir).exists():
            raise TrainError(f"{job.key}: another caller with the same {job.work_dir} stopped the job before its end")
        last = newest_step(job, self.settings)
        if last is None:
            raise TrainError(
                f"{job.key}: {job.work_dir}: expected a step folder beside the final model, there is none; remove the "
                "final model to train again"
            )
        state = read_state(last)
        optimiser = optimiser_folder(job.work_dir) if job.rounds else None
        return TrainResult(final_folder(job.work_dir), state.step, state.metrics, optimiser)

    def warm_up(self, workers: int) -> None:
        """Start the processes that a job with so many workers will need, in the background."""
        if self.settings.own_processes and self._uses_this_machine_only():
            processes.warm_up(workers)

    def _run(self, job: TrainJob, steps_done: int, progress: OnStep) -> None:
        """Train the steps after `steps_done`, and report each line that the workers append to their metrics file.

        Another thread waits for the workers, so that `progress` and SIGINT run in the caller's thread.
        """
        keys = keys_of(job.services) | (own_keys() if job.sampler else {})
        order = Order(job, self.settings, keys, logs.subject())
        train = self._training_function(order)
        order.metrics.touch()
        offset, finished, watchdog = order.metrics.stat().st_size, False, Watchdog(order)
        with ThreadPoolExecutor(1, "training") as threads:
            training = threads.submit(train)
            try:
                while not finished:
                    finished = bool(wait([training], timeout=_POLL_S).done)
                    offset, lines = whole_lines(order.metrics, offset)
                    for metrics in map(json.loads, lines):
                        if metrics["step"] > steps_done:  # restarted workers repeat steps
                            steps_done = int(metrics["step"])
                            progress(steps_done, metrics)  # raises if the caller has lost the job
                            remove_old_steps(job.work_dir)
                    if not finished:
                        watchdog.look()
                training.result()
                remove_old_steps(job.work_dir)
            except WorkersFailed as error:
                log_last_lines([order.log(rank) for rank in range(job.training.workers)])
                raise TrainError(f"{job.key}: training failed: {watchdog.cause}{error}") from error
            except RayError as error:  # Ray itself failed, not a worker
                raise TrainError(f"{job.key}: Ray failed: {type(error).__name__}: {error}") from error
            finally:
                if not finished:
                    order.stop.touch()

    def _training_function(self, order: Order) -> Callable[[], None]:
        """The function that trains `order` and returns at its end. Raises `TrainError` if the cluster is too small."""
        job, resources = order.job, {"CPU": self.cpus_per_worker}
        if kind_of(self.settings) == "GPU":
            resources["GPU"] = self.gpus_per_worker
        cluster = ray.cluster_resources()
        for kind, count in resources.items():
            if cluster.get(kind, 0) < count * job.training.workers:  # Ray would wait for them for ever
                raise TrainError(
                    f"{job.key}: training.workers: {job.training.workers} workers need "
                    f"{count * job.training.workers:g} {kind}, Ray has {cluster.get(kind, 0):g}"
                )
        if not self.settings.own_processes:
            import torch  # here, because these imports take seconds

            from trainers.local.ranks import Ranks
            from trainers.local.worker import run_worker

            return partial(run_worker, order, Ranks(), torch.device("cpu"))
        if self._uses_this_machine_only():
            return partial(processes.train_here, order, self.restarts)
        from trainers.local.ray_train import train_on_cluster  # here, because the import takes five seconds

        return partial(train_on_cluster, order, self.restarts, resources)

    def _uses_this_machine_only(self) -> bool:
        """Whether the workers can use nothing but CPUs of the caller's machine."""
        with_cpus = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        return kind_of(self.settings) == "CPU" and with_cpus == [ray.get_runtime_context().get_node_id()]


def kind_of(settings: LocalSettings) -> ResourceKind:
    """Whether each worker computes on a GPU or a CPU, on the Ray that the caller is connected to."""
    may_use_gpus = settings.device == "auto" and settings.own_processes
    return "GPU" if may_use_gpus and ray.cluster_resources().get("GPU", 0) > 0 else "CPU"


def _resolved(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, path=str(Path(checkpoint.path).resolve()))


def _refuse(job: TrainJob) -> None:
    """Raise `TrainError` for mistakes in the job that would otherwise show only after the workers have started."""
    for name, checkpoint in (("start", job.start), ("reference", job.reference)):
        if checkpoint is not None and not Path(checkpoint.path).is_dir():
            raise TrainError(f"{job.key}: {name}: expected a folder with a model, got {checkpoint.path}")
    if isinstance(job, SolverJob) and not job.questions:
        raise TrainError(f"{job.key}: questions: expected at least one, got none")
    if job.training.sampling.temperature == 0:
        raise TrainError(
            f"{job.key}: sampling.temperature: expected more than 0, because at 0 all rollouts of a prompt are equal; "
            "got 0"
        )
