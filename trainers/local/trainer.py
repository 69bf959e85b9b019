"""The embedded trainer: GRPO in plain torch, in processes of the Ray that the caller has connected to."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import ray
from ray.exceptions import RayError

from core.files import whole_lines
from core.settings.trainers import LocalSettings
from core.types import Checkpoint, ResourceKind
from services.inference.keys import keys_of
from trainers.base import SolverJob, TrainError, TrainJob, TrainResult
from trainers.folders import remove_unfinished
from trainers.local import processes
from trainers.local.order import Order, WorkersFailed
from trainers.local.state import Metrics, final_folder, newest_step, read_state

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class LocalTrainer:
    """Trains in `job.training.workers` processes, each with a GPU or with one thread: `kind_of`.

    On the CPUs of one machine they outlive the job, for the caller's next one (processes.py); elsewhere they are Ray
    Train's (ray_train.py). The workers keep everything in `job.work_dir`, which all of them and the caller must be able
    to reach. When one is lost they start again from the newest step folder, as a later call with the same job does.
    Each holds the whole model, or with `job.training.sharded` its share of it (sharding.py); a step folder is the same,
    so that a job may go on with another number of workers, sharded or not.

    For Ray Train, Ray must run with its dashboard (the process, not the page): without the state API that it serves, a
    watchman that Ray Train leaves on the cluster writes a warning each second, and stays for ever when this process is
    killed.
    """

    settings: LocalSettings = field(default_factory=LocalSettings)
    cpus_per_worker: float = 1.0  # what Ray sets aside for each
    restarts: int = 1  # of lost or failed workers, before giving up

    def train(self, job: TrainJob, progress: Callable[[int, Metrics], None]) -> TrainResult:
        """Run `job` to its end. `progress` is called in this thread, once for each step that was not yet on disk.

        When `progress` raises, or the wait is interrupted, the workers stop after the step they are in, and the
        exception goes on. Raises `TrainError`.
        """
        job = replace(
            job,
            work_dir=job.work_dir.resolve(),  # workers run in a directory of their own
            start=_resolved(job.start),
            reference=job.reference and _resolved(job.reference),
        )
        _check(job)
        job.work_dir.mkdir(parents=True, exist_ok=True)
        remove_unfinished(job.work_dir)
        folder = newest_step(job)
        done = read_state(folder).step if folder else 0
        if not final_folder(job.work_dir).exists():
            self._run(job, done, progress)
        if not final_folder(job.work_dir).exists():
            raise TrainError(f"{job.key}: stopped before its end by another caller in {job.work_dir}")
        last = newest_step(job)
        if last is None:
            raise TrainError(f"{job.key}: {job.work_dir} has a final model and no step folder: expected both")
        state = read_state(last)
        return TrainResult(final_folder(job.work_dir), state.step, state.metrics)

    def warm_up(self, workers: int) -> None:
        """Start what a job of so many workers will need, in the background."""
        if self._is_alone():
            processes.warm_up(workers)

    def _run(self, job: TrainJob, done: int, progress: Callable[[int, Metrics], None]) -> None:
        """Train beyond step `done`, passing on what the workers append to their metrics file.

        The workers are waited for in another thread, which leaves `progress`, and SIGINT, to the caller's.
        """
        order = Order(job, self.settings, _keys(job))
        train = self._start(order)
        order.stop.unlink(missing_ok=True)
        order.metrics.touch()
        offset, finished = order.metrics.stat().st_size, False
        with ThreadPoolExecutor(1, "training") as threads:
            training = threads.submit(train)
            try:
                while not finished:
                    finished = bool(wait([training], timeout=_POLL_S).done)
                    offset, lines = whole_lines(order.metrics, offset)
                    for metrics in map(json.loads, lines):
                        if metrics["step"] > done:  # restarted workers repeat steps
                            done = int(metrics["step"])
                            progress(done, metrics)
                training.result()
            except WorkersFailed as error:
                raise TrainError(f"{job.key}: training failed: {error}") from error
            except RayError as error:  # Ray itself went away
                raise TrainError(f"{job.key}: Ray: {type(error).__name__}: {error}") from error
            finally:
                if not finished:
                    order.stop.touch()

    def _start(self, order: Order) -> Callable[[], None]:
        """What trains, and returns when it is over. Raises `TrainError` where the cluster is too small."""
        job, kinds = order.job, {"CPU": self.cpus_per_worker}
        if kind_of(self.settings) == "GPU":
            kinds["GPU"] = 1.0
        cluster = ray.cluster_resources()
        for kind, count in kinds.items():
            if cluster.get(kind, 0) < count * job.training.workers:  # Ray would wait for them for ever
                raise TrainError(
                    f"{job.key}: workers: {job.training.workers} need {count * job.training.workers:g} {kind}, "
                    f"Ray has {cluster.get(kind, 0):g}"
                )
        if self._is_alone():
            return partial(processes.train_here, order, self.restarts)
        from trainers.local.ray_train import train_on_cluster  # five seconds, for those who need it

        return partial(train_on_cluster, order, self.restarts, kinds)

    def _is_alone(self) -> bool:
        """Whether all that workers may compute with is this machine's CPUs."""
        with_cpus = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        return kind_of(self.settings) == "CPU" and with_cpus == [ray.get_runtime_context().get_node_id()]


def kind_of(settings: LocalSettings) -> ResourceKind:
    """What each worker has one of, on the Ray that the caller is connected to."""
    return "GPU" if settings.device == "auto" and ray.cluster_resources().get("GPU", 0) > 0 else "CPU"


def _resolved(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, path=str(Path(checkpoint.path).resolve()))


def _check(job: TrainJob) -> None:
    """Raise `TrainError` for what could only fail once the workers are up."""
    for name, checkpoint in (("start", job.start), ("reference", job.reference)):
        if checkpoint is not None and not Path(checkpoint.path).is_dir():
            raise TrainError(f"{job.key}: {name}: expected a folder with a model, got {checkpoint.path}")
    if isinstance(job, SolverJob) and not job.questions:
        raise TrainError(f"{job.key}: questions: expected at least one, got none")
    if job.training.sampling.temperature == 0:
        raise TrainError(f"{job.key}: sampling.temperature: expected more than 0, where rollouts differ, got 0")


def _keys(job: TrainJob) -> dict[str, str]:
    """Of the services that the job's workers ask: Ray's processes have the environment of who started Ray."""
    return keys_of(job.services)
