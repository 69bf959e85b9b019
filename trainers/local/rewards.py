"""What a step's rollouts earn: the core's methods, fed with answers, labels, signals and the Solver's votes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from core.answers import extract_boxed
from core.config import ChallengerReward
from core.grading import Grader
from core.groups import make_groups
from core.methods import Method
from core.prompts import parse_question, solver_messages
from core.rewards import METHODS
from core.rewards.rzero import challenger_scores
from core.seeds import seed_for
from core.types import Group, PseudoLabel, Score, Scored
from core.voting import vote_many
from services.inference.client import InferenceClient
from services.inference.engine import Completion, Prompt
from services.inference.signals import with_signals
from trainers.base import SolverService, TrainError, TrainJob, TrainQuestion
from trainers.local.ranks import Ranks
from trainers.schedule import questions_at

Completions = Sequence[Sequence[Completion]]  # group by group
Ask = Callable[[Sequence[Prompt]], list[list[str]]]  # the Solver's answers, texts[i][j] to the j-th sample of prompt i


@dataclass(frozen=True, slots=True)
class Rewarded:
    """What a step's rollouts earned, group by group. `clusters` is empty where no method asked for them."""

    groups: list[Scored]
    metrics: dict[str, float]
    clusters: list[tuple[int, ...] | None] = field(default_factory=list)


Reward = Callable[[int, Completions], Rewarded]


def make_reward(job: TrainJob, ranks: Ranks, grader: Grader) -> Reward:
    """The reward that `job` names. Every rank calls it with the whole step and gets the same; the work is shared."""
    if job.role == "solver":
        return partial(solver_reward, job, ranks, grader=grader)
    return partial(challenger_reward, job, ranks, grader=grader, ask=_asker(_service(job)))


def solver_reward(job: TrainJob, ranks: Ranks, step: int, completions: Completions, *, grader: Grader) -> Rewarded:
    """What the job's method makes of each group, and the step's figures: means over its groups."""
    method = job.reward
    if not isinstance(method, Method):
        raise TrainError(f"{job.key}: reward: expected one of the Solver's methods, got {type(method).__name__}")

    def score(own: list[tuple[TrainQuestion, Sequence[Completion]]]) -> list[tuple[Group, Scored]]:
        answers = [[extract_boxed(completion.text) for completion in group] for _, group in own]
        groups = make_groups(answers, [question.label for question, _ in own], grader)
        if "mean_entropy" in method.needs:
            entropies = [np.array([completion.mean_entropy for completion in group]) for _, group in own]
            groups = [replace(group, mean_entropy=found) for group, found in zip(groups, entropies, strict=True)]
        texts = [(question.text, [completion.text for completion in group]) for question, group in own]
        heard = with_signals(groups, texts, method, job.signals)
        return [(_slim(group), METHODS[method.type](group, method)) for group in heard]

    questions = questions_at(job, step)
    scored = ranks.map(list(zip(questions, completions, strict=True)), score)
    metrics = {**_solver_metrics(questions, scored), **_label_metrics(questions, scored, grader)}
    return Rewarded([found for _, found in scored], metrics, [group.clusters for group, _ in scored])


def _slim(group: Group) -> Group:
    """Without what is large and no longer needed, before it goes to the other ranks."""
    return replace(group, embeddings=None)


def _solver_metrics(questions: Sequence[TrainQuestion], scored: Sequence[tuple[Group, Scored]]) -> dict[str, float]:
    """`majority_share` is what a self-rewarding method maximises, whatever it calls reward. `same_label_share` is the
    greatest share of the step's different questions that have one and the same majority answer, 0 where no two do:
    near 1, the question no longer matters (SRT 4.1.1). The methods' own figures are means over the groups that have
    them.
    """
    groups = [group for group, _ in scored]
    answers = [answer for group in groups for answer in group.answers]
    majorities = {q.question_id: group.vote.answer for q, group in zip(questions, groups, strict=True)}
    same = Counter(answer for answer in majorities.values() if answer is not None)
    most = max(same.values(), default=0)
    metrics = {
        "unparsed_share": answers.count(None) / len(answers),
        "majority_share": sum(group.vote.votes / group.vote.m for group in groups) / len(groups),
        "same_label_share": most / len(majorities) if most > 1 else 0.0,
    }
    for name in dict.fromkeys(name for _, found in scored for name in found.parts):
        values = [found.parts[name] for _, found in scored if name in found.parts]
        metrics[name] = sum(values) / len(values)
    return metrics


def _label_metrics(
    questions: Sequence[TrainQuestion], scored: Sequence[tuple[Group, Scored]], grader: Grader
) -> dict[str, float]:
    """Of the questions whose truth is known: how many were labelled, and how many of these labels are right."""
    known = [(found.label, q.truth) for q, (_, found) in zip(questions, scored, strict=True) if q.truth is not None]
    if not known:
        return {}
    labelled = [(label, truth) for label, truth in known if label is not None and truth is not None]
    metrics = {"labelled_share": len(labelled) / len(known)}
    if labelled:
        right = sum(comparison.verdict == "equal" for comparison in grader.compare_many(labelled))
        metrics["label_accuracy"] = right / len(labelled)
    return metrics


def challenger_reward(
    job: TrainJob, ranks: Ranks, step: int, completions: Completions, *, grader: Grader, ask: Ask
) -> Rewarded:
    """R-Zero 2.2: the Solver answers each well-formed question m times; the whole step is one batch of questions."""
    config = job.reward
    if not isinstance(config, ChallengerReward):
        raise TrainError(f"{job.key}: reward: expected the Challenger's, got {config.type!r}")
    service = _service(job)
    questions = [parse_question(one.text, service.max_question_chars) for group in completions for one in group]
    asked = [(i, question) for i, question in enumerate(questions) if question is not None]

    def label(own: list[tuple[int, str]]) -> list[PseudoLabel]:
        answered = ask([_vote_prompt(job, config, step, i, question) for i, question in own])
        return vote_many([[extract_boxed(text) for text in texts] for texts in answered], grader, service.denominator)

    labels: list[PseudoLabel | None] = [None] * len(questions)
    for (i, _), found in zip(asked, ranks.map(asked, label), strict=True):
        labels[i] = found
    scores = challenger_scores(questions, labels, config)
    rest = iter(scores)
    groups = [Scored(None, np.array([next(rest).value for _ in group])) for group in completions]
    return Rewarded(groups, _challenger_metrics(scores, labels))


def _vote_prompt(job: TrainJob, config: ChallengerReward, step: int, index: int, question: str) -> Prompt:
    seed = seed_for(job.run_seed, job.key, step, "vote", index)
    return Prompt(tuple(solver_messages(question)), seed, config.votes, _service(job).sampling)


def _service(job: TrainJob) -> SolverService:
    if job.solver is None:
        raise TrainError(f"{job.key}: solver: expected the service that answers the Challenger's questions, got None")
    return job.solver


def _asker(service: SolverService) -> Ask:
    client = InferenceClient(service.url, "solver")

    def ask(prompts: Sequence[Prompt]) -> list[list[str]]:
        return [[reply.text for reply in replies] for replies in client.generate(prompts, service.checkpoint)]

    return ask


def _challenger_metrics(scores: Sequence[Score], labels: Sequence[PseudoLabel | None]) -> dict[str, float]:
    """Means of the reward's parts over well-formed questions; a part is missing when there is none."""
    asked = [(score, label) for score, label in zip(scores, labels, strict=True) if label is not None]
    metrics = {"malformed_share": 1 - len(asked) / len(scores)}
    if asked:
        for part in ("uncertainty", "repetition", "p_hat"):
            metrics[part] = sum(score.parts[part] for score, _ in asked) / len(asked)
        metrics["repeated_share"] = sum(score.parts["cluster_size"] > 1 for score, _ in asked) / len(asked)
        metrics["unparsed_share"] = 1 - sum(label.parsed for _, label in asked) / sum(label.m for _, label in asked)
    return metrics
