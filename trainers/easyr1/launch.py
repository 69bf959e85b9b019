"""The EasyR1 trainer: reserves GPUs on our Ray, runs EasyR1 on them, and converts its last checkpoint.

    work_dir/easyr1/              EasyR1's configuration and data, its log, and its checkpoints, from which it resumes
    work_dir/metrics.jsonl        one line per step; EasyR1's own log starts anew at each start of EasyR1
    work_dir/final/               the model and its tokenizer

EasyR1 needs other versions of torch, vLLM, transformers and Ray than we do. Nothing of it is imported; it runs in its
own environment and starts its own Ray on the GPUs that are reserved on ours. An actor on each machine holds the
reservation: when the actor ends, for whatever reason, EasyR1 ends too and the GPUs are free. With several machines,
`work_dir` must be a folder that all of them see.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import ray
from ray.exceptions import RayError

from core.files import replacing, whole_lines
from core.settings.trainers import EasyR1Settings
from core.statistics.guard import StepSignal, ends_training, step_alarms
from services.inference import access
from services.inference.engines.model_files import tokenizer_of
from services.inference.keys import keys_of
from trainers.base import OnStep, TrainError, TrainJob, TrainResult
from trainers.easyr1 import checkpoint
from trainers.easyr1.config import CHECKPOINTS, CONFIG, render, rollout_seed
from trainers.easyr1.fit import checkout_problem
from trainers.easyr1.progress import parse
from trainers.easyr1.reservation import PATIENCE_S, log_of, reserve
from trainers.folders import remove_unfinished
from trainers.last_lines import log_last_lines
from trainers.local.state import fingerprint
from trainers.silence import Silence

_log = logging.getLogger(__name__)

_FOLDER, _METRICS, _FINAL, _FINGERPRINT = "easyr1", "metrics.jsonl", "final", "fingerprint"
_STEPS_LOG = f"{CHECKPOINTS}/experiment_log.jsonl"  # EasyR1 appends a line after each step
_POLL_S = 0.5
_LOGGED = "the log has its last lines"

Metrics = dict[str, float]


@dataclass(frozen=True, slots=True)
class EasyR1Trainer:
    """Runs jobs on GPUs of the Ray cluster that the caller is connected to."""

    settings: EasyR1Settings
    restarts: int = 1  # how often a training is restarted after a failure or the loss of a machine

    def train(self, job: TrainJob, progress: OnStep) -> TrainResult:
        """Run `job` to its end, from EasyR1's newest checkpoint if there is one.

        `progress` is called in this thread, once for each new step. If it raises, or the wait is interrupted, EasyR1 is
        ended and its GPUs are released.

        Raises `TrainError`.
        """
        job = replace(job, work_dir=job.work_dir.resolve())
        folder = job.work_dir / _FOLDER
        self._prepare(job, folder)
        remove_unfinished(job.work_dir)
        final, checkpoints = job.work_dir / _FINAL, folder / CHECKPOINTS
        for attempts_left in reversed(range(self.restarts + 1)):
            _pass_on(job, folder / _STEPS_LOG, 0, progress)  # a process that was killed may not have read all of it
            if _final_step(job, checkpoints) is not None:
                break
            if attempts_left == self.restarts:
                self._refuse_too_few_gpus(job)
            failure = self._run(job, folder, progress)
            if failure is not None and not attempts_left:
                raise TrainError(f"{job.key}: {failure}")
            if failure is not None:
                _log.warning("%s: %s; EasyR1 starts again from its newest checkpoint", job.key, failure)
        step = _final_step(job, checkpoints)
        if step is None:
            last = checkpoint.newest_step(checkpoints)
            raise TrainError(
                f"{job.key}: EasyR1 ended early: expected a checkpoint of step {job.training.steps}, "
                f"the last one is of step {last}"
            )
        if not final.exists():
            checkpoint.merge(checkpoints, step, Path(job.start.path), self.settings, final)
        return TrainResult(final, step, tuple(_of_steps(job, step)))

    def _prepare(self, job: TrainJob, folder: Path) -> None:
        """Check that the job can start, and write the files that EasyR1 starts from."""
        if problem := checkout_problem(Path(self.settings.source)):
            raise TrainError(f"{job.key}: {problem}")
        if not Path(job.start.path).is_dir():
            raise TrainError(f"{job.key}: start: expected a folder with a model, got {job.start.path}")
        fingerprint_file = folder / _FINGERPRINT
        if fingerprint_file.exists() and fingerprint_file.read_text() != fingerprint(job):
            raise TrainError(f"{job.key}: {folder} belongs to another job")
        guard = job.guard
        if guard is not None and any(ends_training(guard.action(signal)) for signal in get_args(StepSignal)):
            # EasyR1 logs a step after it has saved it, so a step that the guard sees is on the disk.
            job = replace(job, training=job.training.model_copy(update={"checkpoint_every": 1}))
        render(job, self.settings, tokenizer_of(Path(job.start.path)), folder)
        fingerprint_file.write_text(fingerprint(job))

    def _run(self, job: TrainJob, folder: Path, progress: OnStep) -> str | None:
        """Start EasyR1 once and wait for its end. Returns what went wrong, or None.

        EasyR1 continues from its newest checkpoint and repeats the steps after it, so their metrics are dropped.
        """
        steps_done = checkpoint.newest_step(folder / CHECKPOINTS) or 0
        _write(job, _of_steps(job, steps_done))
        (folder / _STEPS_LOG).unlink(missing_ok=True)
        keys = keys_of(job.services)
        if (own_key := access.key()) is not None:
            # For the Challenger's reward, which asks our Ray's applications: EasyR1's Ray has a different token, from
            # which the key does not follow.
            keys[access.KEY] = own_key
        shared_keys = ray.put(keys)
        seed = f"worker.rollout.seed={rollout_seed(job, steps_done)}"
        command = [self.settings.python, "-m", "trainers.easyr1.start", f"config={folder / CONFIG}", seed]
        nodes, gpus = self.settings.nodes, self.settings.gpus_per_node
        reserved = reserve(nodes, gpus)
        if reserved is None:
            return f"trainer.nodes: Ray did not provide {nodes} x {gpus} GPUs within {PATIENCE_S:g} s"
        try:
            running = reserved.run(command, self.settings.source, folder, shared_keys)
            return self._wait(job, folder, running, progress)
        except RayError as error:
            return f"a machine with the training's GPUs was lost: {type(error).__name__}: {error}"
        finally:
            reserved.end()

    def _wait(self, job: TrainJob, folder: Path, running: list[Any], progress: OnStep) -> str | None:
        """Pass EasyR1's steps on until it ends, hangs, or the guard ends it. Returns what went wrong, or None.

        `running` are the exit statuses to come of the machines' parts. Raises `RayError`.
        """
        offset, ended, silence = 0, list[Any](), Silence(self.settings.progress_timeout)
        while not ended:
            ended, _ = ray.wait(running, timeout=_POLL_S)
            offset = _pass_on(job, folder / _STEPS_LOG, offset, progress)
            if _guard_step(job) is not None:
                return None
            if not ended and silence.is_too_long(offset):
                log_last_lines([folder / log_of(rank) for rank in range(len(running))])
                return f"no step came from EasyR1 for {silence.longest_s:g} s, and it was killed; " + _LOGGED
        code, rank = ray.get(ended[0]), running.index(ended[0])
        if rank == 0 and code == 0:
            return None
        log_last_lines([folder / log_of(rank)])
        if rank:  # further machines never end by themselves
            return f"machine {rank} of EasyR1's Ray ended early (exit status {code}); {_LOGGED}"
        return f"EasyR1 failed (exit status {code}); {_LOGGED}"

    def _refuse_too_few_gpus(self, job: TrainJob) -> None:
        """Raise `TrainError` if the cluster can never provide the GPUs; Ray would wait for them for ever."""
        nodes, gpus = self.settings.nodes, self.settings.gpus_per_node
        gpus_by_node = [node["Resources"].get("GPU", 0) for node in ray.nodes() if node["Alive"]]
        largest = max(gpus_by_node, default=0)
        if largest < gpus:
            raise TrainError(
                f"{job.key}: trainer.gpus_per_node: expected at most {largest:g}, the GPUs of Ray's largest machine, "
                f"got {gpus}"
            )
        large_enough = sum(node_gpus >= gpus for node_gpus in gpus_by_node)
        if large_enough < nodes:
            raise TrainError(
                f"{job.key}: trainer.nodes: expected at most {large_enough}, the number of Ray's machines with {gpus} "
                f"GPUs, got {nodes}"
            )


def _guard_step(job: TrainJob) -> int | None:
    """The first step at which the guard ends the training, or None."""
    guard, metrics = job.guard, _metrics(job)
    if guard is None:
        return None
    for step in range(1, len(metrics) + 1):
        if any(ends_training(alarm.action) for alarm in step_alarms(metrics[:step], guard, job.history)):
            return step
    return None


def _final_step(job: TrainJob, checkpoints: Path) -> int | None:
    """The step whose checkpoint is the job's result, or None while there are steps left to do.

    EasyR1 may do further steps after the guard's step, before it is ended. Then the guard's step is the result if its
    checkpoint still exists, else the newest step.
    """
    newest, guard_step = checkpoint.newest_step(checkpoints) or 0, _guard_step(job)
    if guard_step is not None and guard_step <= newest:
        return guard_step if (checkpoints / f"global_step_{guard_step}").is_dir() else newest
    return newest if newest >= job.training.steps else None


def _pass_on(job: TrainJob, log: Path, offset: int, progress: OnStep) -> int:
    """Store and report the steps that EasyR1 has logged after byte `offset`. Returns the end of the complete lines."""
    if not log.exists():
        return offset
    end, lines = whole_lines(log, offset)
    for line in lines:
        metrics, previous = parse(line.decode()), _metrics(job)
        if metrics is not None and metrics["step"] == len(previous) + 1:
            _write(job, [*previous, metrics])
            progress(len(previous) + 1, metrics)
    return end


def _metrics(job: TrainJob) -> list[Metrics]:
    path = job.work_dir / _METRICS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _of_steps(job: TrainJob, steps: int) -> list[Metrics]:
    """The metrics of the first steps. EasyR1 logs a step after it has saved it; if it was killed in between, the step
    has no metrics but its number."""
    stored = _metrics(job)[:steps]
    return [*stored, *({"step": float(step)} for step in range(len(stored) + 1, steps + 1))]


def _write(job: TrainJob, metrics: list[Metrics]) -> None:
    with replacing(job.work_dir / _METRICS) as temporary:
        temporary.write_text("".join(json.dumps(step) + "\n" for step in metrics))
