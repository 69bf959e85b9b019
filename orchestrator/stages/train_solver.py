"""Trains S(t) on the kept questions and their pseudo-labels (R-Zero 2.4), or on given prompts.

The rounds on given prompts are one training: each continues with the prompts where the round before stopped, and the KL
is measured against the base model. Whether the optimiser goes on, too, is a setting.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import cast

from core.asking.service import Service
from core.settings.config import CoEvolution, SelfTraining
from core.settings.training import Labelled
from orchestrator.ledger import LastWrite
from orchestrator.stages.context import Context
from orchestrator.stages.training import jobs
from orchestrator.stages.training.curriculum import given_questions
from orchestrator.stages.training.questions import questions_of
from orchestrator.stages.training.rounds import remove_unneeded, rounds_from
from orchestrator.stages.training.running import train
from orchestrator.stages.training.sampling import samples
from services.inference import access
from storage import queries
from storage.files.checkpoints import digest, manifest
from trainers.base import SolverJob, TrainQuestion, TrainResult


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
