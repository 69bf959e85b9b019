"""What the rollouts of a training step earn, whoever trains: texts in, scores and the step's figures out.

The reward that EasyR1 loads calls this in an environment of its own, so it needs `core` and the inference client only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from core.grading.answers import extract_boxed
from core.grading.grader import Grader
from core.methods import Method
from core.methods.rzero import ChallengerReward
from core.questions.prompts import solver_messages
from core.questions.voting import vote_many
from core.rollouts.groups import make_groups
from core.settings.serving import Signals
from core.types import Group, PseudoLabel, Score, Scored
from services.inference.client import InferenceClient
from services.inference.engines.base import Prompt
from services.signals import with_signals
from trainers.base import SolverService, TrainQuestion

Ask = Callable[[Sequence[Prompt]], list[list[str]]]  # the Solver's answers, texts[i][j] to the j-th sample of prompt i
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class PromptRollouts:
    """The G rollouts of one of the Solver's prompts."""

    question: TrainQuestion
    texts: Sequence[str]
    mean_entropies: Sequence[float] | None = None  # (G,), nats a token; None where the trainer does not tell


def solver_scores(
    prompts: Sequence[PromptRollouts], method: Method, signals: Signals, grader: Grader
) -> list[tuple[Group, Scored]]:
    """What the method makes of each prompt's rollouts. Raises `InferenceError`."""
    answers = [[extract_boxed(text) for text in prompt.texts] for prompt in prompts]
    groups = make_groups(answers, [prompt.question.label for prompt in prompts], grader)
    if "mean_entropy" in method.needs:
        known = [None if prompt.mean_entropies is None else np.array(prompt.mean_entropies) for prompt in prompts]
        groups = [replace(group, mean_entropy=entropies) for group, entropies in zip(groups, known, strict=True)]
    texts = [(prompt.question.text, prompt.texts) for prompt in prompts]
    with_all = with_signals(groups, texts, method, signals)
    return [(group, method.score(group)) for group in with_all]


def solver_figures(
    questions: Sequence[TrainQuestion], scored: Sequence[tuple[Group, Scored]], grader: Grader
) -> Figures:
    """A step's figures. `majority_share` is what a self-rewarding method maximises, whatever it calls reward.
    `same_label_share` is the greatest share of the step's different questions that have one and the same majority
    answer, 0 where no two do: near 1, the question no longer matters (SRT 4.1.1). The methods' own figures are means
    over the groups that have them.
    """
    groups = [group for group, _ in scored]
    answers = [answer for group in groups for answer in group.answers]
    majorities = {q.question_id: group.vote.answer for q, group in zip(questions, groups, strict=True)}
    same = Counter(answer for answer in majorities.values() if answer is not None)
    most = max(same.values(), default=0)
    figures = {
        "unparsed_share": answers.count(None) / len(answers),
        "majority_share": sum(group.vote.votes / group.vote.m for group in groups) / len(groups),
        "same_label_share": most / len(majorities) if most > 1 else 0.0,
    }
    for name in dict.fromkeys(name for _, of_group in scored for name in of_group.parts):
        values = [of_group.parts[name] for _, of_group in scored if name in of_group.parts]
        figures[name] = sum(values) / len(values)
    return figures | _label_figures(questions, [of_group for _, of_group in scored], grader)


def _label_figures(questions: Sequence[TrainQuestion], scored: Sequence[Scored], grader: Grader) -> Figures:
    """How right the step's labels are, of the prompts whose truth is known; nothing where none is. Each share has its
    n, the different questions that it rests on:

    - `labelled_share` of `truths_known`: prompts that the method labelled. It abstains from the others.
    - `label_accuracy` of `labels_checked`: right labels.
    - `negative_label_accuracy` of `negatives_checked`: of the answers to a prompt that the method takes for wrong
      (SCRL 3.3), the share that is wrong; the mean over the prompts that have such answers.

    What the grader cannot decide is not right.
    """
    known = [(q, q.truth, group) for q, group in zip(questions, scored, strict=True) if q.truth is not None]
    positive = [(q, group.label, truth) for q, truth, group in known if group.label is not None]
    negative = [(q, answer, truth) for q, truth, group in known for answer in group.negatives]
    pairs = [(answer, truth) for _, answer, truth in [*positive, *negative]]
    verdicts = iter([comparison.verdict for comparison in grader.compare_many(pairs)])
    right = [next(verdicts) == "equal" for _ in positive]
    wrong: dict[str, list[bool]] = {}
    for question, *_ in negative:
        wrong.setdefault(question.question_id, []).append(next(verdicts) == "unequal")
    figures: Figures = {}
    if known:
        figures |= {"truths_known": _count_questions(known), "labelled_share": len(positive) / len(known)}
    if positive:
        figures |= {"labels_checked": _count_questions(positive), "label_accuracy": sum(right) / len(right)}
    if wrong:
        accuracies = [sum(of_question) / len(of_question) for of_question in wrong.values()]
        figures |= {"negatives_checked": len(wrong), "negative_label_accuracy": sum(accuracies) / len(accuracies)}
    return figures


def _count_questions(prompts: Sequence[tuple[TrainQuestion, Any, Any]]) -> int:
    return len({question.question_id for question, *_ in prompts})


def solver_votes(
    asked: Sequence[tuple[int, str]],
    config: ChallengerReward,
    service: SolverService,
    seed: Callable[[int], int],
    ask: Ask,
    grader: Grader,
) -> list[PseudoLabel]:
    """The Solver's vote on each well-formed question of a step (R-Zero 2.2). `seed` turns a question's index in the
    step into the seed of its samples."""
    prompts = [
        Prompt(tuple(solver_messages(question)), seed(i), config.votes, service.sampling) for i, question in asked
    ]
    answers = [[extract_boxed(text) for text in texts] for texts in ask(prompts)]
    return vote_many(answers, grader, service.denominator)


def make_ask(client: InferenceClient, checkpoint: str) -> Ask:
    """What asks the Solver's service, and has `checkpoint` answer."""

    def ask(prompts: Sequence[Prompt]) -> list[list[str]]:
        return [[reply.text for reply in replies] for replies in client.generate(prompts, checkpoint)]

    return ask


def challenger_groups(
    questions: Sequence[str | None], labels: Mapping[int, PseudoLabel], config: ChallengerReward, size: int
) -> tuple[list[Scored], Figures]:
    """What a step's questions earn the Challenger, in groups of `size` rollouts, and the step's figures; `labels` has
    a vote for the index of each well-formed one."""
    by_index = [labels.get(i) for i in range(len(questions))]
    scores = config.scores(questions, by_index)
    values = np.array([score.value for score in scores])
    groups = [Scored(None, values[start : start + size]) for start in range(0, len(scores), size)]
    return groups, _challenger_figures(scores, by_index)


def _challenger_figures(scores: Sequence[Score], labels: Sequence[PseudoLabel | None]) -> Figures:
    """Means of the reward's parts over well-formed questions; a part is missing when there is none."""
    asked = [(score, label) for score, label in zip(scores, labels, strict=True) if label is not None]
    figures = {"malformed_share": 1 - len(asked) / len(scores)}
    if asked:
        for part in ("uncertainty", "repetition", "p_hat"):
            figures[part] = sum(score.parts[part] for score, _ in asked) / len(asked)
        figures["repeated_share"] = sum(score.parts["cluster_size"] > 1 for score, _ in asked) / len(asked)
        figures["unparsed_share"] = 1 - sum(label.parsed for _, label in asked) / sum(label.m for _, label in asked)
    return figures
