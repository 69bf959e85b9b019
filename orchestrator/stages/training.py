"""A training: its job, from the run's settings and rows, and its way through the worker pool to a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from core.settings.config import CoEvolution, RunConfig
from core.settings.serving import Service
from core.settings.trainers import EasyR1Settings, LocalSettings, TrainerSettings
from core.settings.training import Labelled
from core.types import Checkpoint, Spent
from orchestrator import jobs
from orchestrator.costs import refuse_spent
from orchestrator.ledger import LastWrite
from orchestrator.pool.slot import demand_of, training_slot
from orchestrator.stages.context import Context, StageError
from orchestrator.stages.training_metrics import labelled_metrics, replace_metrics, store_step
from orchestrator.stages.training_rollouts import StoredTraining, store_rollouts
from services.inference import access
from services.oracles import exact
from storage import queries
from storage.checkpoints import digest, manifest, publish, published_manifest, verify
from storage.rows import TrainedOnRow
from trainers.base import ChallengerJob, SolverJob, Trainer, TrainJob, TrainQuestion, TrainResult
from trainers.local.trainer import LocalTrainer
from trainers.schedule import questions_at


def challenger_job(context: Context[CoEvolution], start: Checkpoint, solver: Checkpoint) -> ChallengerJob:
    """The training of the Challenger from `start`, rewarded by the answers of `solver`."""
    key, url = f"{context.iteration}/train_challenger", context.services.endpoint("solver")
    return jobs.challenger_job(context.config, key, start, solver, url, _work_dir(context, "train_challenger"))


def _work_dir(context: Context, stage: str) -> Path:
    return context.home.work / context.run / str(context.iteration) / stage


def _own_service(context: Context, name: str) -> Service:
    """One of the run's own applications in the form of an external service."""
    return Service(url=context.services.endpoint(name), model=name, key_variable=access.KEY if access.key() else None)


def solver_job(context: Context, key: str, questions: tuple[TrainQuestion, ...]) -> SolverJob:
    solver = context.config.solver
    own_services = {
        setting: _own_service(context, name) for name, setting in solver.signals.served(solver.reward).items()
    }
    job = jobs.solver_job(
        context.config, key, context.checkpoint("solver"), questions, _work_dir(context, "train_solver")
    )
    return replace(job, signals=solver.signals.model_copy(update=own_services), history=context.training_history())


def steps_before(context: Context) -> int:
    """The total number of steps of the rounds before this one."""
    with context.store.read() as session:
        rounds = [row for row in queries.ledger.stages_of(session, context.run) if row.stage == "train_solver"]
    return sum((row.result or {}).get("steps", 0) for row in rounds if row.iteration < context.iteration)


def chained_job(context: Context, labelled: Labelled, job: SolverJob, result: TrainResult) -> SolverJob:
    """The training on labelled data that follows `job` and starts from its result."""
    start = replace(job.start, path=str(result.folder), sha256=digest(manifest(result.folder)))
    return _labelled_job(context, labelled, start, job.work_dir / "labelled")


def _labelled_job(context: Context, labelled: Labelled, start: Checkpoint, work_dir: Path) -> SolverJob:
    return jobs.labelled_job(context.config, labelled, f"{context.iteration}/train_labelled", start, work_dir)


def _run(context: Context, job: TrainJob, steps_before: int | None = None) -> TrainResult:
    """Wait for a slot of the worker pool and train.

    For a training on labelled data, `steps_before` is the number of steps of the Solver's training before it.
    """
    settings, steps = context.config.trainer, job.training.steps
    stage = context.stage
    served = stage == "train_solver" and context.config.solver.signals.served(context.config.solver.reward)
    holds_applications = bool(stage == "train_challenger" or context.config.serving.release or served)
    trainer = _trainer(settings)
    demand = demand_of(settings, job.training.workers)
    with training_slot(context, demand, holds_applications) as refuse_lost_slot:

        def show(step: int, metrics: Mapping[str, float]) -> None:
            context.progress(step, steps, f"steps, reward {metrics.get('reward_mean', float('nan')):.3f}")

        def progress(step: int, metrics: Mapping[str, float]) -> None:
            show(step, metrics)
            [stored] = [metrics] if steps_before is None else labelled_metrics([metrics], steps_before)
            store_step(context, job.role, stored)
            if step % job.training.checkpoint_every == 0 and step < steps:
                refuse_lost_slot()
                refuse_spent(context.store, context.run, context.config)

        result = trainer.train(job, progress)
        show(result.step, result.metrics[-1])  # a training that was killed after its last step had nothing left to do
        return result


def _trainer(settings: TrainerSettings) -> Trainer:
    if isinstance(settings, EasyR1Settings):
        from trainers.easyr1.launch import EasyR1Trainer  # imports torch and transformers, which takes seconds

        return EasyR1Trainer(settings)
    return LocalTrainer(settings)


def warm_up(config: RunConfig) -> None:
    """Start the processes that the run's first training will need, while the stages before it run."""
    if isinstance(config.trainer, LocalSettings):
        LocalTrainer(config.trainer).warm_up(max(planned.training.workers for planned in config.trainings))


def kept_questions(context: Context) -> tuple[TrainQuestion, ...]:
    """The kept questions of a co-evolution run with their pseudo-labels, and true answers if the trainer audits labels.

    Raises:
        StageError: no question was kept.
    """
    with context.store.read() as session:
        kept = queries.questions.labels_of(session, context.run, context.iteration, "kept")
    # Labels that the method makes during training are audited by the trainer, which so gets the truth; no reward sees
    # it.
    audited = context.config.solver.reward.labels == "online" and context.config.audit.oracle == "exact"
    questions = tuple(
        TrainQuestion(row.question_id, row.text, row.label.answer, _truth(row.text) if audited else None)
        for row in kept
        if row.text is not None and row.label is not None and row.label.answer is not None
    )
    if not questions:
        limits = context.config.dataset.limits
        expected = "some with a majority" if limits is None else f"some with {limits[0]:g} <= p_hat <= {limits[1]:g}"
        raise StageError(
            f"run {context.run}, iteration {context.iteration}: no question was kept, so the Solver has nothing to "
            f"learn from: expected {expected}. See the histogram of p_hat in `coevo report {context.run}`"
        )
    return questions


def _truth(question: str) -> str:
    """The exact oracle's answer; for an ill-posed question a text that equals no label, so that no label is right."""
    answer = exact.answer(question)
    return exact.ILL_POSED if answer is None else answer


def train(context: Context, job: TrainJob, next_job: Callable[[TrainResult], TrainJob] | None = None) -> LastWrite:
    """Run the training, then the one that `next_job` makes from its result, and publish the final checkpoint.

    The second training continues the count of steps. Its metrics are stored as `labelled_NAME`, which the guard does
    not watch. It does not run if the guard ended the first one early.
    """
    moments = job.rounds.optimiser if job.rounds else None
    for checkpoint in {job.start, job.reference or job.start, moments or job.start}:
        verify(Path(checkpoint.path), checkpoint.sha256)  # the file may have been damaged since it was loaded
    result = _run(context, job)
    stored = [StoredTraining(job.work_dir, result.step)]
    sampled = sampling_spent(job, result.metrics)
    if next_job is not None and result.step == job.training.steps:
        next_one = next_job(result)
        labelled = _run(context, next_one, steps_before=result.step)
        stored.append(StoredTraining(next_one.work_dir, labelled.step, result.step))
        sampled += sampling_spent(next_one, labelled.metrics)
        metrics = (*result.metrics, *labelled_metrics(labelled.metrics, result.step))
        result = TrainResult(labelled.folder, result.step + labelled.step, metrics)
    context.refuse_lost()
    publish_result = partial(
        publish, run=context.run, role=job.role, iteration=context.iteration, step=result.step, parent=job.start.id
    )
    checkpoint = publish_result(result.folder, context.home.checkpoints)
    optimiser = publish_result(result.optimiser, context.home.optimisers) if result.optimiser else None
    trained_rows = _trained_on_rows(job, checkpoint.id, min(result.step, job.training.steps))
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


def train_branch(context: Context, labelled: Labelled) -> LastWrite:
    """Train the iteration's Solver on labelled data, and publish the result beside the Solver (R-Zero B.3).

    The seeds are those of a chained training, so that both give the same checkpoint from the same Solver. The count of
    steps and the names of the metrics are also as there.
    """
    start = context.checkpoint("solver")
    work_dir = context.home.work / context.run / str(context.iteration) / context.stage
    job = _labelled_job(context, labelled, start, work_dir)
    verify(Path(start.path), start.sha256)
    result = _run(context, job, steps_before=start.step)
    context.refuse_lost()
    checkpoint = publish(
        result.folder,
        context.home.checkpoints,
        run=context.run,
        role="labelled",
        iteration=context.iteration,
        step=start.step + result.step,
        parent=start.id,
    )
    add_rollouts = store_rollouts(context, job.role, [StoredTraining(work_dir, result.step, start.step)])

    def last_write(session: Session) -> dict[str, Any]:
        queries.checkpoints.add_checkpoint(session, checkpoint, published_manifest(Path(checkpoint.path)))
        add_rollouts(session)
        steps = labelled_metrics(result.metrics, start.step)
        replace_metrics(session, context.key, job.role, steps, after=start.step)
        queries.usage.add_usage(session, context.key, "training", sampling_spent(job, result.metrics))
        return {"checkpoint": checkpoint.id, "sha256": checkpoint.sha256, "steps": result.step}

    return last_write


def sampling_spent(job: TrainJob, steps: Iterable[Mapping[str, float]]) -> Spent:
    """What the trainer sampled in some steps, from the mean lengths that it reports."""
    prompts, rollouts = job.training.prompts_per_step, job.training.prompts_per_step * job.rollouts
    return sum(
        (
            Spent(
                prompts,
                round(prompts * metrics.get("prompt_length", 0)),
                round(rollouts * metrics.get("response_length", 0)),
            )
            for metrics in steps
        ),
        Spent(),
    )


def reward_spent(steps: Iterable[Mapping[str, float]]) -> Spent:
    """What the Challenger's reward asked the Solver in some steps."""
    names = [field.name for field in fields(Spent)]
    return Spent(*(sum(round(metrics.get(f"reward_{name}", 0)) for metrics in steps) for name in names))


def _trained_on_rows(job: TrainJob, checkpoint: str, steps: int) -> list[TrainedOnRow]:
    """The questions that a Solver's job trains on and at which steps. They are the same with either trainer."""
    if not isinstance(job, SolverJob):
        return []
    steps_of: dict[str, set[int]] = {}
    for step in range(1, steps + 1):
        for question in questions_at(job, step):
            steps_of.setdefault(question.question_id, set()).add(step)
    return [TrainedOnRow(question, checkpoint, sorted(its_steps)) for question, its_steps in steps_of.items()]
