"""The EasyR1 trainer: GPUs reserved on our Ray, EasyR1 in its own environment on them, its checkpoints made ours.

    work_dir/easyr1/              what EasyR1 is started with, its log, and its checkpoints, from which it resumes
    work_dir/metrics.jsonl        a line a step; EasyR1's own log begins anew whenever it is started
    work_dir/final/               the model and its tokenizer

EasyR1 needs another torch, vLLM, transformers and Ray than we do, so nothing of it is imported and it starts a Ray of
its own, within the GPUs that ours has given away. The reservation is an actor on each machine: when it goes, EasyR1
goes, however it went, and the GPUs are free. With several machines `work_dir` is a folder that all of them see.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import ray
from ray.exceptions import RayError
from transformers import AutoTokenizer

from core.files import put, whole_lines
from core.settings.trainers import EasyR1Settings
from core.statistics.guard import StepSignal, ends_training, step_alarms
from services.inference import access
from services.inference.keys import keys_of
from trainers.base import TrainError, TrainJob, TrainResult
from trainers.easyr1 import PINNED, checkpoint, corrections
from trainers.easyr1.config import CHECKPOINTS, CONFIG, render, rollout_seed
from trainers.easyr1.progress import parse
from trainers.easyr1.reservation import PATIENCE_S, log_of, reserve
from trainers.folders import remove_unfinished
from trainers.local.state import fingerprint

_FOLDER, _METRICS, _FINAL, _FINGERPRINT = "easyr1", "metrics.jsonl", "final", "fingerprint"
_POLL_S = 0.5
_SAID = 4000  # characters of EasyR1's log that go with a failure

Metrics = dict[str, float]
Progress = Callable[[int, Metrics], None]


@dataclass(frozen=True, slots=True)
class EasyR1Trainer:
    """Runs jobs on GPUs of the Ray that the caller is connected to."""

    settings: EasyR1Settings
    restarts: int = 1  # of a training that failed or whose machine was lost, before giving up

    def train(self, job: TrainJob, progress: Progress) -> TrainResult:
        """Run `job` to its end, from EasyR1's newest checkpoint if there is one. `progress` is called in this thread,
        once for each new step. When it raises, or the wait is interrupted, EasyR1 ends and its GPUs are free.

        Raises `TrainError`.
        """
        job = replace(job, work_dir=job.work_dir.resolve())
        folder = job.work_dir / _FOLDER
        self._prepare(job, folder)
        remove_unfinished(job.work_dir)
        final, checkpoints = job.work_dir / _FINAL, folder / CHECKPOINTS
        for left in reversed(range(self.restarts + 1)):
            if _end(job, checkpoints) is not None:
                break
            if left == self.restarts:
                self._refuse_impossible(job)
            failure = self._run(job, folder, progress)
            if failure is not None and not left:
                raise TrainError(f"{job.key}: {failure}")
        step = _end(job, checkpoints)
        if step is None:
            last = checkpoint.newest_step(checkpoints)
            raise TrainError(f"{job.key}: EasyR1 ended early: expected step {job.training.steps}, its last is {last}")
        if not final.exists():
            checkpoint.merge(checkpoints, step, Path(job.start.path), self.settings, final)
        return TrainResult(final, step, tuple(_metrics(job)[:step]))

    def _prepare(self, job: TrainJob, folder: Path) -> None:
        main = Path(self.settings.source) / "verl" / "trainer" / "main.py"
        if not main.is_file():
            raise TrainError(f"{job.key}: trainer.source: expected a checkout of EasyR1, there is no {main}")
        if why := corrections.unknown(Path(self.settings.source)):
            raise TrainError(
                f"{job.key}: trainer.source: expected a checkout of EasyR1 {PINNED}, whose rollouts we keep from being "
                f"the same for equal prompts (trainers/easyr1/corrections.py); got another: {why}"
            )
        if not Path(job.start.path).is_dir():
            raise TrainError(f"{job.key}: start: expected a folder with a model, got {job.start.path}")
        mine = folder / _FINGERPRINT
        if mine.exists() and mine.read_text() != fingerprint(job):
            raise TrainError(f"{job.key}: {folder} belongs to another job")
        job = replace(job, training=job.training.model_copy(update={"checkpoint_every": _save_every(job)}))
        render(job, self.settings, AutoTokenizer.from_pretrained(job.start.path, local_files_only=True), folder)
        mine.write_text(fingerprint(job))

    def _run(self, job: TrainJob, folder: Path, progress: Progress) -> str | None:
        """One start of EasyR1, to its end; what went wrong, or None. Steps that were lost are done again."""
        keep = checkpoint.newest_step(folder / CHECKPOINTS) or 0
        _write(job, _metrics(job)[:keep])
        log = folder / CHECKPOINTS / "experiment_log.jsonl"
        log.unlink(missing_ok=True)
        keys = keys_of(job.services)
        if (own := access.key()) is not None:
            keys[access.KEY] = own  # for the Challenger's reward: EasyR1's Ray has a token of its own
        shared = ray.put(keys)
        nodes, gpus = self.settings.nodes, self.settings.gpus_per_node
        reserved = reserve(nodes, gpus)
        if reserved is None:
            return f"Ray did not give it {nodes} x {gpus} GPUs within {PATIENCE_S:g} s"
        try:
            command = _command(self.settings, folder, job, keep)
            working = reserved.run(command, self.settings.source, folder, shared)
            offset, ended = 0, list[Any]()
            while not ended:
                ended, _ = ray.wait(working, timeout=_POLL_S)
                offset = _pass_on(job, log, offset, progress)
                if _guarded(job) is not None:
                    return None
            code, rank = ray.get(ended[0]), working.index(ended[0])
            if rank:  # it stays until it is told to go
                return f"machine {rank} of EasyR1's Ray went (exit status {code}): {_tail(folder / log_of(rank))}"
            return None if code == 0 else f"EasyR1 failed (exit status {code}): {_tail(folder / log_of(0))}"
        except RayError as error:
            return f"a machine with its GPUs was lost: {type(error).__name__}: {error}"
        finally:
            reserved.end()

    def _refuse_impossible(self, job: TrainJob) -> None:
        """Ray would wait for it for ever."""
        nodes, gpus = self.settings.nodes, self.settings.gpus_per_node
        available = [node["Resources"].get("GPU", 0) for node in ray.nodes() if node["Alive"]]
        if max(available, default=0) < gpus:
            largest = f"the largest machine of Ray's has {max(available, default=0):g}"
            raise TrainError(f"{job.key}: trainer.gpus_per_node: {gpus} asked for, {largest}")
        if (able := sum(of_node >= gpus for of_node in available)) < nodes:
            has = f"Ray has {able} of {gpus} GPUs"
            raise TrainError(f"{job.key}: trainer.nodes: {nodes} machines asked for, {has}")


def _save_every(job: TrainJob) -> int:
    """Every step where the guard may end the training at any: EasyR1 logs a step after it has saved it, so that what
    the guard sees is on the disk."""
    guard = job.guard
    may_end = guard is not None and any(ends_training(guard.action(signal)) for signal in get_args(StepSignal))
    return 1 if may_end else job.training.checkpoint_every


def _guarded(job: TrainJob) -> int | None:
    """The first step at which the guard calls for an end."""
    guard, metrics = job.guard, _metrics(job)
    if guard is None:
        return None
    for step in range(1, len(metrics) + 1):
        if any(ends_training(alarm.action) for alarm in step_alarms(metrics[:step], guard, job.history)):
            return step
    return None


def _end(job: TrainJob, checkpoints: Path) -> int | None:
    """The step whose checkpoint is the job's result; None as long as there is more to do.

    What EasyR1 did beyond the guard's step, before it was ended, does not count where that step is still there.
    """
    newest, guarded = checkpoint.newest_step(checkpoints) or 0, _guarded(job)
    if guarded is not None and guarded <= newest:
        return guarded if (checkpoints / f"global_step_{guarded}").is_dir() else newest
    return newest if newest >= job.training.steps else None


def _command(settings: EasyR1Settings, folder: Path, job: TrainJob, done: int) -> list[str]:
    seed = f"worker.rollout.seed={rollout_seed(job, done)}"
    return [settings.python, "-m", "trainers.easyr1.start", f"config={folder / CONFIG}", seed]


def _pass_on(job: TrainJob, log: Path, offset: int, progress: Progress) -> int:
    """Keep and report what EasyR1 has logged since `offset`; returns where its whole lines end."""
    if not log.exists():
        return offset
    end, lines = whole_lines(log, offset)
    for line in lines:
        metrics, known = parse(line.decode()), _metrics(job)
        if metrics is not None and metrics["step"] == len(known) + 1:
            _write(job, [*known, metrics])
            progress(len(known) + 1, metrics)
    return end


def _metrics(job: TrainJob) -> list[Metrics]:
    path = job.work_dir / _METRICS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _write(job: TrainJob, metrics: list[Metrics]) -> None:
    path = job.work_dir / _METRICS
    temporary = path.with_suffix(".part")
    temporary.write_text("".join(json.dumps(step) + "\n" for step in metrics))
    put(temporary, path)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-_SAID:] if log.exists() else "it left no log"
