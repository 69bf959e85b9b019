"""What a step's rollouts earn: the core's reward functions, fed with texts, labels and the Solver's votes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from core.answers import extract_boxed
from core.config import ChallengerReward
from core.grading import Grader
from core.prompts import parse_question, solver_messages
from core.rewards.rzero import challenger_scores, solver_scores
from core.seeds import seed_for
from core.types import PseudoLabel, Score
from core.voting import vote_many
from services.inference.client import InferenceClient
from services.inference.engine import Prompt
from trainers.base import SolverService, TrainError, TrainJob, TrainQuestion
from trainers.local.ranks import Ranks
from trainers.local.schedule import questions_at

Groups = Sequence[Sequence[str]]  # the rollouts' texts, group by group
Ask = Callable[[Sequence[Prompt]], list[list[str]]]  # the Solver's answers, texts[i][j] to the j-th sample of prompt i


@dataclass(frozen=True, slots=True)
class Rewarded:
    """What a step's rollouts earned. `scores` is shaped like the groups; `metrics` describe the step."""

    scores: list[list[Score]]
    metrics: dict[str, float]


Reward = Callable[[int, Groups], Rewarded]


def make_reward(job: TrainJob, ranks: Ranks, grader: Grader) -> Reward:
    """The reward that `job` names. Every rank calls it with the whole step and gets the same; the work is shared."""
    if job.role == "solver":
        return partial(solver_reward, job, ranks, grader=grader)
    return partial(challenger_reward, job, ranks, grader=grader, ask=_asker(_service(job)))


def solver_reward(job: TrainJob, ranks: Ranks, step: int, groups: Groups, *, grader: Grader) -> Rewarded:
    """R-Zero 2.4: whether a rollout's answer equals the question's pseudo-label."""

    def equal(a: str, b: str) -> bool:
        return grader.compare(a, b).verdict == "equal"

    def score(own: list[tuple[TrainQuestion, list[str | None]]]) -> list[list[Score]]:
        return [solver_scores(answers, question.label, equal) for question, answers in own]

    answers = [[extract_boxed(text) for text in group] for group in groups]
    scores = ranks.map(list(zip(questions_at(job, step), answers, strict=True)), score)
    flat = [answer for group in answers for answer in group]
    return Rewarded(scores, {"unparsed_share": sum(answer is None for answer in flat) / len(flat)})


def challenger_reward(job: TrainJob, ranks: Ranks, step: int, groups: Groups, *, grader: Grader, ask: Ask) -> Rewarded:
    """R-Zero 2.2: the Solver answers each well-formed question m times; the whole step is one batch of questions."""
    config = job.reward
    if not isinstance(config, ChallengerReward):
        raise TrainError(f"{job.key}: reward: expected the Challenger's, got {config.type!r}")
    service = _service(job)
    questions = [parse_question(text, service.max_question_chars) for group in groups for text in group]
    asked = [(i, question) for i, question in enumerate(questions) if question is not None]

    def label(own: list[tuple[int, str]]) -> list[PseudoLabel]:
        answered = ask([_vote_prompt(job, config, step, i, question) for i, question in own])
        return vote_many([[extract_boxed(text) for text in texts] for texts in answered], grader, service.denominator)

    labels: list[PseudoLabel | None] = [None] * len(questions)
    for (i, _), found in zip(asked, ranks.map(asked, label), strict=True):
        labels[i] = found
    scores = challenger_scores(questions, labels, config)
    rest = iter(scores)
    return Rewarded([[next(rest) for _ in group] for group in groups], _challenger_metrics(scores, labels))


def _vote_prompt(job: TrainJob, config: ChallengerReward, step: int, index: int, question: str) -> Prompt:
    seed = seed_for(job.run_seed, job.key, step, "vote", index)
    return Prompt(tuple(solver_messages(question)), seed, config.votes, _service(job).sampling)


def _service(job: TrainJob) -> SolverService:
    if job.solver is None:
        raise TrainError(f"{job.key}: solver: expected the service that answers the Challenger's questions, got None")
    return job.solver


def _asker(service: SolverService) -> Ask:
    client = InferenceClient(service.url)

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
        metrics["unparsed_share"] = 1 - sum(label.parsed for _, label in asked) / sum(label.m for _, label in asked)
    return metrics
