"""Scores a step's rollouts in the embedded trainer: `trainers.rewards`, with the work divided among the workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from core.grading.grader import Grader
from core.questions.parsing import parse_question
from core.seeds import seed_for
from core.types import Group, PseudoLabel, Scored, Spent
from services.inference.client import InferenceClient
from services.inference.engines.base import Completion
from trainers.base import ChallengerJob, SolverJob, TrainError, TrainJob
from trainers.local.ranks import Ranks
from trainers.rewards import (
    Ask,
    PromptRollouts,
    challenger_groups,
    group_seed,
    make_ask,
    solver_figures,
    solver_scores,
    solver_votes,
)
from trainers.rollouts import Content, solver_contents
from trainers.schedule import questions_at

Completions = Sequence[Sequence[Completion]]  # group by group


@dataclass(frozen=True, slots=True)
class Rewarded:
    """The scores of a step's rollouts, one entry per group, and the step's figures."""

    groups: list[Scored]
    metrics: dict[str, float]
    clusters: list[tuple[int, ...] | None] = field(default_factory=list)  # empty for a Challenger's step
    contents: list[list[Content]] = field(default_factory=list)  # needed if the job stores rollouts


Reward = Callable[[int, Completions], Rewarded]


def make_reward(job: TrainJob, ranks: Ranks, grader: Grader) -> Reward:
    """The reward function of `job`.

    Every rank calls it with the rollouts of the whole step and gets the same result; the work is divided among them.
    """
    if isinstance(job, SolverJob):
        return partial(solver_reward, job, ranks, grader=grader)
    if isinstance(job, ChallengerJob):
        ask = make_ask(InferenceClient(job.solver.url, "solver"), job.solver.checkpoint)
        return partial(challenger_reward, job, ranks, grader=grader, ask=ask)
    raise TrainError(f"{job.key}: expected a Challenger's or a Solver's job, got {type(job).__name__}")


def solver_reward(job: SolverJob, ranks: Ranks, step: int, completions: Completions, *, grader: Grader) -> Rewarded:
    """Score each group with the job's method, and compute the step's figures."""

    def score(own: list[PromptRollouts]) -> list[tuple[Group, Scored]]:
        # The embeddings are large and no longer needed, so they are dropped before the groups go to the other ranks.
        return [
            (replace(group, embeddings=None), scored)
            for group, scored in solver_scores(own, job.reward, job.signals, grader)
        ]

    questions = questions_at(job, step)
    prompts = [
        PromptRollouts(
            question,
            [completion.text for completion in group],
            group_seed(job.run_seed, job.key, job.steps_before + step, position),
            [completion.mean_entropy for completion in group],
        )
        for position, (question, group) in enumerate(zip(questions, completions, strict=True))
    ]
    scored = ranks.map(prompts, score)
    metrics = solver_figures(questions, scored, job.reward, grader)
    contents = [solver_contents(question, *group) for question, group in zip(questions, scored, strict=True)]
    return Rewarded([score for _, score in scored], metrics, [group.clusters for group, _ in scored], contents)


def challenger_reward(
    job: ChallengerJob, ranks: Ranks, step: int, completions: Completions, *, grader: Grader, ask: Ask
) -> Rewarded:
    """R-Zero 2.2: the Solver answers each well-formed question m times; the whole step is one batch of questions."""
    config, service = job.reward, job.solver
    questions = [
        parse_question(
            completion.text, service.max_question_chars, config.format, control_tokens=service.control_tokens
        )
        for group in completions
        for completion in group
    ]
    well_formed = [(index, question) for index, question in enumerate(questions) if question is not None]

    seed = partial(seed_for, job.run_seed, job.key, job.steps_before + step, "vote")

    def vote(own: list[tuple[int, str]]) -> list[tuple[PseudoLabel, Spent]]:
        return solver_votes(own, config, service, seed, ask, grader)

    votes = dict(zip((index for index, _ in well_formed), ranks.map(well_formed, vote), strict=True))
    size = len(completions[0])
    groups, metrics = challenger_groups(questions, votes, config, size)
    contents = [Content(None, question) for question in questions]
    by_prompt = [contents[start : start + size] for start in range(0, len(contents), size)]
    return Rewarded(groups, metrics, contents=by_prompt)
