"""Trains S(t) on the kept questions and their pseudo-labels (R-Zero 2.4), or on given prompts.

The rounds on given prompts are one training: each continues with the prompts where the round before stopped, and the KL
is measured against the base model. Whether the optimiser goes on, too, is a setting.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from core.asking.service import Service
from core.settings.config import CoEvolution, SelfTraining
from core.settings.training import Labelled
from core.worlds import solve
from orchestrator.ledger import LastWrite
from orchestrator.stages.context import Context, StageError
from orchestrator.stages.training import jobs
from orchestrator.stages.training.curriculum import given_questions
from orchestrator.stages.training.rounds import remove_unneeded, rounds_from
from orchestrator.stages.training.running import train
from orchestrator.stages.training.sampling import samples
from services.inference import access
from services.oracles import exact
from storage import queries
from storage.files.checkpoints import digest, manifest
from trainers.base import SolverJob, TrainQuestion, TrainResult

T = TypeVar("T")


def train_solver(context: Context) -> LastWrite:
    config, t, next_job = context.config, context.iteration, None
    if isinstance(config, SelfTraining):
        job = solver_job(context, "train_solver", given_questions(context, config.prompts))
        with context.store.read() as session:
            stages = queries.ledger.stages_of(session, context.run.name)
        before = [row.result or {} for row in stages if row.stage == "train_solver" and row.iteration < t]
        job = replace(
            job,
            reference=context.checkpoint("solver", 0),
            steps_before=sum(result.get("steps", 0) for result in before),
            rounds=rounds_from(context, config, job.start),
        )
        remove_unneeded(context, job.start)
    else:
        job = solver_job(context, f"{t}/train_solver", questions_of(cast("Context[CoEvolution]", context)))
        if config.labelled is not None and config.labelled.chained:
            next_job = partial(chained_job, context, config.labelled, job)
    # A training that stops or queries applications needs exclusive use of them. Otherwise another run could start its
    # own and take the GPUs.
    served, sampling = config.solver.signals.served(config.solver.reward), samples(config, "solver", job.start)
    needs_applications = config.serving.release or served or sampling
    with context.serving(sampling, tuple(served)) if needs_applications else nullcontext():
        return train(context, job, next_job)


def solver_job(context: Context, key: str, questions: tuple[TrainQuestion, ...]) -> SolverJob:
    """The job of the iteration's Solver. The run's own applications take the form of external services in it."""
    solver, services = context.config.solver, context.run.services
    key_variable = access.KEY if access.key() else None
    own_services = {
        setting: Service(url=services.endpoint(name), model=name, key_variable=key_variable)
        for name, setting in solver.signals.served(solver.reward).items()
    }
    job = jobs.solver_job(context.config, key, context.checkpoint("solver"), questions, context.work_dir)
    return replace(job, signals=solver.signals.model_copy(update=own_services), history=context.training_history())


def chained_job(context: Context, labelled: Labelled, job: SolverJob, result: TrainResult) -> SolverJob:
    """The training on labelled data that follows `job` and starts from its result."""
    start = replace(job.start, path=str(result.folder), sha256=digest(manifest(result.folder)))
    key, work_dir = f"{context.iteration}/train_labelled", job.work_dir / "labelled"
    return jobs.labelled_job(context.config, labelled, key, start, work_dir)


def drawn(questions: Sequence[T], share: float, others: int, seed: int) -> list[T]:
    """Questions of which, in their order, so many are drawn that they are `share` of all with `others`; all if few."""
    count = min(len(questions), round(share / (1 - share) * others))
    return [questions[i] for i in sorted(random.Random(seed).sample(range(len(questions)), count))]


def questions_of(context: Context[CoEvolution]) -> tuple[TrainQuestion, ...]:
    """What the Solver of a co-evolution run trains on: the kept questions with their pseudo-labels, with
    `dataset.replay` those of earlier iterations with theirs, and with `labelled.share` labelled ones.

    Raises:
        StageError: no question was kept.
    """
    run, t, config = context.run.name, context.iteration, context.config
    dataset, labelled, replay = config.dataset, config.labelled, config.dataset.replay
    with context.store.read() as session:
        rows = queries.questions.labels_of(session, run, t, "kept")
        if rows and replay is not None:
            first = max(1, t - replay.iterations) if replay.iterations else 1
            makers = queries.forks.makers(session, run, t - 1)
            earlier = [
                row for i in range(first, t) for row in queries.questions.labels_of(session, makers[i], i, "kept")
            ]
            rows = [*rows, *drawn(earlier, replay.share, len(rows), context.seed("replay"))]
        refused = queries.questions.count_verdicts(session, run, t).get("refused", 0)
    # Labels that the method makes during training are audited by the trainer, which so gets the truth; no reward sees
    # it. An ill-posed question gets a text that equals no label, so that no label is right.
    audited = config.solver.reward.labels == "online" and config.audit.oracle == "exact"
    questions = list[TrainQuestion]()
    for row in rows:
        if row.text is not None and row.label is not None and row.label.answer is not None:
            solved = solve(row.text) if audited or dataset.labels == "exact" else None
            known = None if solved is None else str(solved)
            truth = (known or exact.ILL_POSED) if audited else None
            answer = row.label.answer if dataset.labels == "votes" else known
            if answer is not None:
                questions.append(TrainQuestion(row.question_id, row.text, answer, truth))
    if not questions:
        limits = dataset.limits
        expected = "some with a majority" if limits is None else f"some with {limits[0]:g} <= p_hat <= {limits[1]:g}"
        expected += f", of which the gates refused all {refused:,}" if refused else ""
        raise StageError(
            f"run {context.run}, iteration {context.iteration}: no question was kept, so the Solver has nothing to "
            f"learn from: expected {expected}. See the histogram of p_hat in `coevo report {context.run}`"
        )
    if labelled is not None and labelled.share is not None:
        anchors = jobs.labelled_questions(config, labelled)
        questions += drawn(anchors, labelled.share, len(questions), context.seed("anchors"))
    return tuple(questions)
