"""The stages that train: `train_challenger` (R-Zero 2.2) and `train_solver` (R-Zero 2.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from core.settings.config import CoEvolution, RunConfig, SelfTraining
from core.settings.serving import Service
from core.settings.trainers import EasyR1Settings, LocalSettings, TrainerSettings
from core.settings.training import Labelled
from core.types import Stage
from orchestrator.ledger import LastWrite
from orchestrator.pool.slot import demand_of, training_slot
from orchestrator.question_sets.prompts import trained_on
from orchestrator.stages.context import Context, StageError
from orchestrator.stages.curriculum import given_questions
from services.inference import access
from services.oracles import exact
from storage import queries
from storage.checkpoints import digest, manifest, publish, published_manifest, verify
from storage.rows import TrainedOnRow
from trainers.base import ChallengerJob, SolverJob, SolverService, Trainer, TrainJob, TrainQuestion, TrainResult
from trainers.local.trainer import LocalTrainer
from trainers.schedule import questions_at


def train_challenger(context: Context[CoEvolution]) -> LastWrite:
    """C(t): the Challenger learns to ask what S(t-1) is least sure of (R-Zero 2.2)."""
    t, challenger = context.iteration, context.config.challenger
    before = context.checkpoint("challenger", t - 1)
    if not challenger.trained:
        return lambda _session: {"checkpoint": before.id, "trained": False}
    solver = context.checkpoint("solver", t - 1)
    dataset = context.config.dataset
    job = ChallengerJob(
        key=f"{t}/train_challenger",
        run_seed=context.config.seed,
        start=before,
        training=challenger.training,
        reward=challenger.reward,
        solver=SolverService(
            context.services.endpoint("solver"),
            solver.id,
            dataset.sampling,
            dataset.denominator,
            dataset.max_question_chars,
        ),
        work_dir=context.home.work / context.run / str(t) / "train_challenger",
    )
    with context.serving({"solver": solver}, soon={"challenger": before}):
        return _train(context, job)


def _own(context: Context, name: str) -> Service:
    """One of the run's own applications, to be asked as other people's services are."""
    return Service(url=context.services.endpoint(name), model=name, key_variable=access.KEY if access.key() else None)


def train_solver(context: Context) -> LastWrite:
    """S(t): the Solver learns from the kept questions and their pseudo-labels (R-Zero 2.4), or from given prompts.

    Rounds on given prompts are one training, but for its optimiser, which begins anew: the prompts go on where the
    round before left them, and the KL is to the base model.
    """
    config, then = context.config, None
    if isinstance(config, SelfTraining):
        job = _solver_job(context, "train_solver", given_questions(context, config.prompts))
        job = replace(job, reference=context.checkpoint("solver", 0), steps_before=_steps_before(context))
    else:
        job = _solver_job(context, f"{context.iteration}/train_solver", kept_questions(context))
        then = partial(_labelled_job, context, config.labelled, job) if config.labelled else None
    # Where applications give way to it, or are asked by it, their turn is taken too: another run's would take the GPUs.
    served = config.solver.signals.served(config.solver.reward)
    waits = config.serving.release or served
    with context.serving({}, tuple(served)) if waits else nullcontext():
        return _train(context, job, then)


def _solver_job(context: Context, key: str, questions: tuple[TrainQuestion, ...]) -> SolverJob:
    solver = context.config.solver
    own = {setting: _own(context, name) for name, setting in solver.signals.served(solver.reward).items()}
    return SolverJob(
        key=key,
        run_seed=context.config.seed,
        start=context.checkpoint("solver", context.iteration - 1),
        training=solver.training,
        reward=solver.reward,
        questions=questions,
        work_dir=context.home.work / context.run / str(context.iteration) / "train_solver",
        signals=solver.signals.model_copy(update=own),
        guard=context.config.guard,
        history=context.training_history(),
    )


def _steps_before(context: Context) -> int:
    """How many steps the rounds before this one took."""
    with context.store.read() as session:
        rounds = [row for row in queries.ledger.stages_of(session, context.run) if row.stage == "train_solver"]
    return sum((row.result or {}).get("steps", 0) for row in rounds if row.iteration < context.iteration)


def _labelled_job(context: Context, labelled: Labelled, job: SolverJob, result: TrainResult) -> SolverJob:
    """What follows `job`: from where it came to, on true labels (R-Zero B.3); held-out questions are left out."""
    questions = tuple(
        TrainQuestion(f"labelled/{at:06d}", prompt.text, prompt.answer, prompt.answer)
        for at, prompt in trained_on(context.config, labelled.prompts)
    )
    start = replace(job.start, path=str(result.folder), sha256=digest(manifest(result.folder)))
    return replace(
        job,
        key=f"{context.iteration}/train_labelled",
        start=start,
        training=labelled.training,
        reward=labelled.reward,
        questions=questions,
        work_dir=job.work_dir / "labelled",
        guard=None,
    )


def _run(context: Context, job: TrainJob) -> TrainResult:
    """Train with a slot of the worker pool."""
    settings, steps, done = context.config.trainer, job.training.steps, 0
    stage: Stage = "train_solver" if job.role == "solver" else "train_challenger"
    served = job.role == "solver" and context.config.solver.signals.served(context.config.solver.reward)
    has_turn = bool(job.role == "challenger" or context.config.serving.release or served)
    trainer = _trainer(settings)

    def report(note: str) -> None:
        context.progress(done, steps, note)

    demand = demand_of(settings, job.training.workers)
    with training_slot(context, stage, demand, report, has_turn) as refuse_lost_slot:

        def progress(step: int, metrics: Mapping[str, float]) -> None:
            nonlocal done
            done = step
            report(f"steps, reward {metrics.get('reward_mean', float('nan')):.3f}")
            if step % job.training.checkpoint_every == 0 and step < steps:
                refuse_lost_slot()

        return trainer.train(job, progress)


def _trainer(settings: TrainerSettings) -> Trainer:
    if isinstance(settings, EasyR1Settings):
        from trainers.easyr1.launch import EasyR1Trainer  # torch and transformers: seconds before a run's first stage

        return EasyR1Trainer(settings)
    return LocalTrainer(settings)


def warm_up(config: RunConfig) -> None:
    """Have the processes start that the run's first training will need, while the stages before it are at work."""
    if isinstance(config.trainer, LocalSettings):
        LocalTrainer(config.trainer).warm_up(max(planned.training.workers for planned in config.trainings))


def kept_questions(context: Context) -> tuple[TrainQuestion, ...]:
    """What the Solver of a co-evolution run learns from, with pseudo-labels, and the truth where it is asked for.

    Raises:
        StageError: nothing was kept.
    """
    with context.store.read() as session:
        kept = queries.questions.labels_of(session, context.run, context.iteration, "kept")
    # Labels that are made during training are audited there, so the trainer gets the truth, which no reward sees.
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
            f"learn from: expected {expected}. `coevo report {context.run}` has the histogram of p_hat"
        )
    return questions


def _truth(question: str) -> str:
    """The exact oracle's answer. Whatever label an ill-posed question gets is not right, as in an audit."""
    answer = exact.answer(question)
    return exact.ILL_POSED if answer is None else answer


def _train(context: Context, job: TrainJob, then: Callable[[TrainResult], TrainJob] | None = None) -> LastWrite:
    """Train, and what follows from it, and publish where that comes to.

    The steps of both are counted on; the figures of the second are named for what it is, and no signal of the guard's.
    """
    for checkpoint in {job.start, job.reference or job.start}:  # services may hold it since before it was damaged
        verify(Path(checkpoint.path), checkpoint.sha256)
    result = _run(context, job)
    if then is not None and result.step == job.training.steps:  # not after what the guard ended
        after = _run(context, then(result))
        counted_on = [
            {f"labelled_{name}": value for name, value in metrics.items() if name != "step"}
            | {"step": result.step + metrics["step"]}
            for metrics in after.metrics
        ]
        result = TrainResult(after.folder, result.step + after.step, (*result.metrics, *counted_on))
    checkpoint = publish(
        result.folder,
        context.home.checkpoints,
        run=context.run,
        role=job.role,
        iteration=context.iteration,
        step=result.step,
        parent=job.start.id,
    )

    learned_from = _learned_from(job, checkpoint.id, min(result.step, job.training.steps))

    def last_write(session: Session) -> dict[str, Any]:
        queries.checkpoints.add_checkpoint(session, checkpoint, published_manifest(Path(checkpoint.path)))
        queries.traces.add_trained_on(session, learned_from)
        add = partial(
            queries.figures.add_train_metrics, session, run=context.run, iteration=context.iteration, role=job.role
        )
        for step, metrics in enumerate(result.metrics, 1):
            add(step=step, metrics=metrics)
        return {"checkpoint": checkpoint.id, "sha256": checkpoint.sha256, "steps": result.step}

    return last_write


def _learned_from(job: TrainJob, checkpoint: str, steps: int) -> list[TrainedOnRow]:
    """The questions that a job put before its policy, and at which of its steps: the same with either trainer."""
    if not isinstance(job, SolverJob):
        return []
    at: dict[str, set[int]] = {}
    for step in range(1, steps + 1):
        for question in questions_at(job, step):
            at.setdefault(question.question_id, set()).add(step)
    return [TrainedOnRow(question, checkpoint, sorted(at_steps)) for question, at_steps in at.items()]
