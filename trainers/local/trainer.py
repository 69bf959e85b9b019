"""The embedded trainer: GRPO in plain torch, run by Ray Train on the Ray that the caller has connected to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import ray
import torch
from ray.exceptions import RayError
from ray.train import get_context
from ray.train.torch import TorchConfig, get_device
from ray.train.v2.api.config import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
from ray.train.v2.api.exceptions import TrainingFailedError, WorkerGroupError
from ray.train.v2.torch.torch_trainer import TorchTrainer
from transformers.utils.logging import disable_progress_bar

from core.grading import Grader
from core.methods import Method
from core.trainer_settings import LocalSettings
from core.types import Checkpoint
from services.inference.keys import keys_of
from trainers.base import TrainError, TrainJob, TrainResult
from trainers.folders import remove_unfinished
from trainers.local.checkpoints import Metrics, final_folder, newest_step, read_state
from trainers.local.loop import train
from trainers.local.ranks import Ranks
from trainers.local.rewards import make_reward

_POLL_S = 0.2
_METRICS, _STOP, _RAY = "metrics.jsonl", "stop", "ray"


@dataclass(frozen=True, slots=True)
class LocalTrainer:
    """Trains in `job.training.workers` processes, each with a GPU where the machine has one, else with one thread.

    The workers keep everything in `job.work_dir`, which all of them and the caller must be able to reach. When one is
    lost they start again from the newest step folder, as a later call with the same job does.
    Each holds the whole model, or with `job.training.sharded` its share of it (sharding.py); a step folder is the same,
    so that a job may go on with another number of workers, sharded or not.

    Ray must run with its dashboard (the process, not the page): without the state API that it serves, a watchman that
    Ray Train leaves on the cluster writes a warning each second, and stays for ever when this process is killed.
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
        (job.work_dir / _STOP).unlink(missing_ok=True)
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

    def _run(self, job: TrainJob, done: int, progress: Callable[[int, Metrics], None]) -> None:
        """Train beyond step `done`, passing on what the workers append to their metrics file.

        Ray Train blocks; in a thread of its own it leaves `progress`, and SIGINT, to the caller's.
        """
        trainer = self._trainer(job)
        written = job.work_dir / _METRICS
        written.touch()
        offset, finished = written.stat().st_size, False
        with ThreadPoolExecutor(1, "ray-train") as threads:
            training = threads.submit(trainer.fit)
            try:
                while not finished:
                    finished = bool(wait([training], timeout=_POLL_S).done)
                    offset, lines = _lines_from(written, offset)
                    for metrics in lines:
                        if metrics["step"] > done:  # restarted workers repeat steps
                            done = int(metrics["step"])
                            progress(done, metrics)
                training.result()
            except TrainingFailedError as error:
                raise TrainError(f"{job.key}: training failed: {_cause(error)}") from error
            except RayError as error:  # Ray itself went away
                raise TrainError(f"{job.key}: Ray: {type(error).__name__}: {error}") from error
            finally:
                if not finished:
                    (job.work_dir / _STOP).touch()

    def _trainer(self, job: TrainJob) -> Any:
        found = ray.cluster_resources()
        gpu = found.get("GPU", 0) > 0
        each = {"CPU": self.cpus_per_worker, **({"GPU": 1.0} if gpu else {})}
        for kind, count in each.items():
            if found.get(kind, 0) < count * job.training.workers:  # Ray would wait for them for ever
                raise TrainError(
                    f"{job.key}: workers: {job.training.workers} need {count * job.training.workers:g} {kind}, "
                    f"Ray has {found.get(kind, 0):g}"
                )
        return TorchTrainer(
            _worker,
            # As an object, since Ray shows a configuration to whoever looks at its state.
            train_loop_config={"job": job, "settings": self.settings, "keys": ray.put(_keys(job))},
            torch_config=TorchConfig(backend="nccl" if gpu else "gloo"),
            scaling_config=ScalingConfig(num_workers=job.training.workers, use_gpu=gpu, resources_per_worker=each),
            run_config=RunConfig(
                name=uuid4().hex,  # Ray's own idea of resuming goes by the name; ours is in checkpoints.py
                storage_path=str(job.work_dir / _RAY),
                failure_config=FailureConfig(max_failures=self.restarts),
                logging_config=LoggingConfig(log_level="WARNING"),
            ),
        )


def _resolved(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, path=str(Path(checkpoint.path).resolve()))


def _check(job: TrainJob) -> None:
    """Raise `TrainError` for what could only fail once the workers are up."""
    for name, checkpoint in (("start", job.start), ("reference", job.reference)):
        if checkpoint is not None and not Path(checkpoint.path).is_dir():
            raise TrainError(f"{job.key}: {name}: expected a folder with a model, got {checkpoint.path}")
    if job.role == "solver" and not job.questions:
        raise TrainError(f"{job.key}: questions: expected at least one, got none")
    if job.role == "challenger" and job.solver is None:
        raise TrainError(f"{job.key}: solver: expected the service that answers the Challenger's questions, got None")
    if job.training.sampling.temperature == 0:
        raise TrainError(f"{job.key}: sampling.temperature: expected more than 0, where rollouts differ, got 0")


def _keys(job: TrainJob) -> dict[str, str]:
    """Of the services that the job's workers ask: Ray's processes have the environment of who started Ray."""
    return keys_of(job.signals.services(job.reward)) if isinstance(job.reward, Method) else {}


def _worker(config: dict[str, Any]) -> None:
    """What each worker of Ray Train runs."""
    job: TrainJob = config["job"]
    os.environ.update(ray.get(config["keys"]))
    disable_progress_bar()  # of loading and saving: they would land in the caller's terminal
    device = get_device()
    if device.type == "cpu":
        torch.set_num_threads(1)  # sums in one order: the same bits on every run
    else:
        torch.cuda.set_device(device)  # where nccl gathers what is not a tensor
    context = get_context()
    ranks = Ranks(context.get_world_rank(), context.get_world_size())
    with Grader() as grader, (job.work_dir / _METRICS).open("a", encoding="utf-8") as file:

        def report(metrics: Metrics) -> None:
            file.write(json.dumps(metrics) + "\n")
            file.flush()

        reward = make_reward(job, ranks, grader)
        train(
            job,
            reward,
            ranks=ranks,
            device=str(device),
            report=report,
            stopped=(job.work_dir / _STOP).exists,
            settings=config["settings"],
        )


def _cause(error: TrainingFailedError) -> str:
    """The last line of each worker's traceback; the whole of them is in `error`."""
    failures = [*error.worker_failures.values()] if isinstance(error, WorkerGroupError) else [error]
    return "; ".join(sorted({str(failure).strip().splitlines()[-1] for failure in failures}))


def _lines_from(file: Path, offset: int) -> tuple[int, Iterator[Metrics]]:
    """The whole lines from byte `offset` on, and where they end."""
    with file.open("rb") as stream:
        stream.seek(offset)
        whole, _, _ = stream.read().rpartition(b"\n")
    return offset + len(whole) + bool(whole), (json.loads(line) for line in whole.splitlines())
