"""A step's prompts, seeds and learning rate, as pure functions of (job, step), so that resuming needs no state."""

from __future__ import annotations

import math
import random
from functools import partial
from itertools import product

from core.seeds import seed_for
from core.settings.training import Training
from core.types import Message
from services.inference.engines.base import Prompt, VocabularyDropout
from trainers.base import ChallengerJob, SolverJob, TrainJob, TrainQuestion


def questions_at(job: SolverJob, step: int, refilled: int = 0) -> list[TrainQuestion]:
    """The questions of the Solver's step `step`, which counts from 1, and its first `refilled` further ones.

    Each epoch shuffles all questions anew, and each step takes the next `prompts_per_step` of them. An epoch may end
    within a step. With fewer questions than prompts, a step holds the same question more than once. The further ones
    are the others, shuffled for the step, again and again.
    """
    count, overall_step = job.training.prompts_per_step, job.steps_before + step
    positions = range((overall_step - 1) * count, overall_step * count)
    shuffled = {}
    for epoch in {position // len(job.questions) for position in positions}:
        generator = random.Random(seed_for(job.run_seed, job.key, "epoch", epoch))
        shuffled[epoch] = generator.sample(job.questions, len(job.questions))
    usual = [shuffled[position // len(job.questions)][position % len(job.questions)] for position in positions]
    if not refilled:
        return usual
    taken = {*usual}
    others = [question for question in job.questions if question not in taken] or list(job.questions)
    random.Random(seed_for(job.run_seed, job.key, "refill", overall_step)).shuffle(others)
    return usual + [others[position % len(others)] for position in range(refilled)]


def rollouts_at(job: TrainJob, step: int, refilled: int = 0) -> list[Prompt]:
    """One prompt for each rollout of the step, each with its own seed; the rollouts of a group are adjacent. All have
    the step's mask over the vocabulary, if the job has masks."""
    seed, dropout = partial(seed_for, job.run_seed, job.key, job.steps_before + step), None
    if isinstance(job, ChallengerJob) and job.vocabulary_retention < 1:
        dropout = VocabularyDropout(retention=job.vocabulary_retention, seed=seed("vocabulary"))
    return [
        Prompt(tuple(messages), seed(group, member), 1, job.training.sampling, dropout=dropout)
        for (group, messages), member in product(enumerate(chats_at(job, step, refilled)), range(job.rollouts))
    ]


def chats_at(job: TrainJob, step: int, refilled: int = 0) -> list[list[Message]]:
    """The chat of each prompt of the step `step`, which counts from 1."""
    match job:
        case ChallengerJob():
            return [job.template.messages()] * job.training.prompts_per_step
        case SolverJob():
            return [job.template.messages(question.text) for question in questions_at(job, step, refilled)]
        case _:
            raise TypeError(f"expected a ChallengerJob or a SolverJob, got {type(job).__name__}")


def learning_rate_at(job: TrainJob, step: int) -> float:
    """The learning rate of all updates of the step `step`, which counts from 1."""
    before, steps = (job.steps_before, job.rounds.steps) if job.rounds else (0, job.training.steps)
    return job.training.learning_rate * schedule_factor(job.training, before + step - 1, steps)


def schedule_factor(training: Training, done: int, steps: int) -> float:
    """The share of `learning_rate` that a step gets after `done` steps of `steps`, as in EasyR1 and verl.

    During the w warm-up steps it is `done / w`, so the first step has learning rate 0: it fills AdamW's moments and
    changes no weight. After them it is 1, or, with `schedule = "cosine"`,
    `(1 + cos(pi (done - w) / (steps - w))) / 2`, which would reach 0 one step after the last (EasyR1,
    verl/utils/torch_functional.py: get_cosine_schedule_with_warmup).
    """
    warmup = training.warmup_steps
    if done < warmup:
        return done / warmup
    if training.schedule == "constant":
        return 1.0
    progress = (done - warmup) / (steps - warmup)
    return (1 + math.cos(math.pi * progress)) / 2
