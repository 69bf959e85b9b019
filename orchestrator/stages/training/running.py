"""The way of a training's job through the worker pool to a published checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from core.settings.config import RunConfig
from core.settings.trainers import EasyR1Settings, LocalSettings
from core.types import Spent
from orchestrator.costs import refuse_spent
from orchestrator.ledger import LastWrite
from orchestrator.pool.slot import demand_of, training_slot
from orchestrator.serving.applications import gpu_left_by, read_applications
from orchestrator.stages.context import Context
from orchestrator.stages.training.metrics import labelled_metrics, replace_metrics, store_step
from orchestrator.stages.training.rollouts import StoredTraining, store_rollouts
from orchestrator.stages.training.sampling import sampler_of
from storage import queries
from storage.files.checkpoints import publish, published_manifest, verify
from storage.rows import TrainedOnRow
from trainers.base import ChallengerJob, SolverJob, Trainer, TrainJob, TrainResult
from trainers.local.trainer import LocalTrainer
from trainers.schedule import questions_at


def run_training(context: Context, job: TrainJob, steps_before: int | None = None) -> TrainResult:
    """Wait for a slot of the worker pool and train.

    For a training on labelled data, `steps_before` is the number of steps of the Solver's training before it.
    """
    settings, stage, steps = context.config.trainer, context.stage, job.training.steps
    served = stage == "train_solver" and context.config.solver.signals.served(context.config.solver.reward)
    holds_applications = bool(
        stage == "train_challenger" or context.config.serving.release or served or context.config.application_samples
    )
    job = replace(job, sampler=sampler_of(context, job))
    trainer: Trainer
    share = 1.0
    if job.sampler:
        applications = read_applications(context.config.serving.applications)
        share = gpu_left_by(applications, context.config.roles)
    if isinstance(settings, EasyR1Settings):
        from trainers.easyr1.launch import EasyR1Trainer  # imports torch and transformers, which takes seconds

        trainer = EasyR1Trainer(settings)
    else:
        trainer = LocalTrainer(settings, gpus_per_worker=share)
    demand = demand_of(settings, job.training.workers, share)
    slot = training_slot(context.run, context.key, demand, context.note, holds_applications=holds_applications)
    with slot as refuse_lost_slot:

        def show(step: int, metrics: Mapping[str, float]) -> None:
            context.progress(step, steps, f"steps, reward {metrics.get('reward_mean', float('nan')):.3f}")

        def progress(step: int, metrics: Mapping[str, float]) -> None:
            show(step, metrics)
            [stored] = [metrics] if steps_before is None else labelled_metrics([metrics], steps_before)
            store_step(context, job.role, stored)
            if step % job.training.checkpoint_every == 0 and step < steps:
                refuse_lost_slot()
                refuse_spent(context.store, context.run.name, context.config)

        result = trainer.train(job, progress)
        show(result.step, result.metrics[-1])  # a training that was killed after its last step had nothing left to do
        return result


def warm_up(config: RunConfig) -> None:
    """Start the processes that the run's first training will need, while the stages before it run."""
    if isinstance(config.trainer, LocalSettings):
        LocalTrainer(config.trainer).warm_up(max(planned.training.workers for planned in config.trainings))


def train(context: Context, job: TrainJob, next_job: Callable[[TrainResult], TrainJob] | None = None) -> LastWrite:
    """Run the training, then the one that `next_job` makes from its result, and publish the final checkpoint.

    The second training continues the count of steps. Its metrics are stored as `labelled_NAME`, which the guard does
    not watch. It does not run if the guard ended the first one early.
    """
    moments = job.rounds.optimiser if job.rounds else None
    for checkpoint in {job.start, job.reference or job.start, moments or job.start}:
        verify(Path(checkpoint.path), checkpoint.sha256)  # the file may have been damaged since it was loaded
    result = run_training(context, job)
    stored = [StoredTraining(job.work_dir, result.step)]
    sampled = sampling_spent(job, result.metrics)
    if next_job is not None and result.step == job.training.steps:
        next_one = next_job(result)
        labelled = run_training(context, next_one, steps_before=result.step)
        stored.append(StoredTraining(next_one.work_dir, labelled.step, result.step))
        sampled += sampling_spent(next_one, labelled.metrics)
        metrics = (*result.metrics, *labelled_metrics(labelled.metrics, result.step))
        result = TrainResult(labelled.folder, result.step + labelled.step, metrics)
    context.refuse_lost()
    publish_result = partial(
        publish, run=context.run.name, role=job.role, iteration=context.iteration, step=result.step, parent=job.start.id
    )
    checkpoint = publish_result(result.folder, context.run.home.checkpoints)
    optimiser = publish_result(result.optimiser, context.run.home.optimisers) if result.optimiser else None
    trained_on: dict[str, set[int]] = {}  # question -> the steps at which it is trained on; the same with any trainer
    if isinstance(job, SolverJob):
        for step in range(1, min(result.step, job.training.steps) + 1):
            refilled = round(result.metrics[step - 1].get("refilled", 0))
            for question in questions_at(job, step, refilled):
                trained_on.setdefault(question.question_id, set()).add(step)
    trained_rows = [TrainedOnRow(question, checkpoint.id, sorted(steps)) for question, steps in trained_on.items()]
    add_rollouts = store_rollouts(context, job.role, stored)

    def last_write(session: Session) -> dict[str, Any]:
        queries.checkpoints.add_checkpoint(session, checkpoint, published_manifest(Path(checkpoint.path)))
        queries.traces.add_trained_on(session, trained_rows)
        add_rollouts(session)
        replace_metrics(session, context.key, job.role, result.metrics)
        queries.usage.add_usage(session, context.key, "training", sampled)
        if isinstance(job, ChallengerJob):
            queries.usage.add_usage(session, context.key, "reward", reward_spent(result.metrics))
        published = {"checkpoint": checkpoint.id, "sha256": checkpoint.sha256, "steps": result.step}
        return {**published, **({"optimiser": optimiser.sha256} if optimiser else {})}

    return last_write


def sampling_spent(job: TrainJob, steps: Iterable[Mapping[str, float]]) -> Spent:
    """What the trainer sampled in some steps, from the mean lengths that it reports."""
    total = Spent()
    for metrics in steps:
        prompts = job.training.prompts_per_step + round(metrics.get("refilled", 0))
        read, written = metrics.get("prompt_length", 0), metrics.get("response_length", 0)
        total += Spent(prompts, round(prompts * read), round(prompts * job.rollouts * written))
    return total


def reward_spent(steps: Iterable[Mapping[str, float]]) -> Spent:
    """What the Challenger's reward asked the Solver in some steps."""
    names = [field.name for field in fields(Spent)]
    return Spent(*(sum(round(metrics.get(f"reward_{name}", 0)) for metrics in steps) for name in names))
