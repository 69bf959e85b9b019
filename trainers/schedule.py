"""What a step asks and with which seeds: pure functions of (job, step), so that resuming needs no state."""

from __future__ import annotations

import random
from itertools import product

from core.questions.prompts import challenger_messages, solver_messages
from core.seeds import seed_for
from services.inference.engines.base import Prompt
from trainers.base import SolverJob, TrainJob, TrainQuestion


def questions_at(job: SolverJob, step: int) -> list[TrainQuestion]:
    """The Solver's questions of `step` (from 1): the next ones in a shuffle of all, a new shuffle each epoch.

    An epoch may end within a step; with fewer questions than prompts, a question comes more than once in a step.
    """
    count, at = job.training.prompts_per_step, job.steps_before + step
    places = range((at - 1) * count, at * count)
    epochs = {i // len(job.questions) for i in places}
    shuffled = {epoch: _shuffled(job, epoch) for epoch in epochs}
    return [shuffled[i // len(job.questions)][i % len(job.questions)] for i in places]


def rollouts_at(job: TrainJob, step: int) -> list[Prompt]:
    """One prompt a rollout, each with its own seed; the rollouts of a group stand together."""
    training, at = job.training, job.steps_before + step
    if isinstance(job, SolverJob):
        asked = [solver_messages(question.text) for question in questions_at(job, step)]
    else:
        asked = [challenger_messages()] * training.prompts_per_step
    return [
        Prompt(tuple(messages), seed_for(job.run_seed, job.key, at, group, member), 1, training.sampling)
        for (group, messages), member in product(enumerate(asked), range(job.rollouts))
    ]


def _shuffled(job: SolverJob, epoch: int) -> list[TrainQuestion]:
    generator = random.Random(seed_for(job.run_seed, job.key, "epoch", epoch))
    return generator.sample(job.questions, len(job.questions))
