"""Scores the rollouts of a training step, for both trainers: texts in, scores and the step's figures out.

EasyR1's reward function calls this module in EasyR1's own environment, so it imports nothing but `core`,
`services.inference.signals`, the inference client, `trainers.base` and `trainers.rollouts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import compress
from statistics import fmean
from typing import Any, Protocol, TypeVar

import numpy as np

from core import worlds
from core.challenger import Asked, ChallengerReward
from core.grading.answers import extract_boxed
from core.grading.grader import Grader
from core.methods import Method
from core.questions.parsing import parse_question
from core.questions.voting import vote_many
from core.rollouts.groups import agreements, make_groups
from core.rollouts.scoring import score_group
from core.rollouts.strategies import count_strategies
from core.seeds import seed_for
from core.settings.serving import Signals
from core.types import DEGENERATE, Group, PseudoLabel, Scored, Spent
from services.inference.client import Reply, spent
from services.inference.engines.base import Prompt
from services.inference.signals import with_signals
from trainers.base import SolverService, TrainQuestion
from trainers.rollouts import Content, solver_contents

T = TypeVar("T")
R = TypeVar("R")

Ask = Callable[[Sequence[Prompt]], list[list[Reply]]]  # asks the Solver; result[i][j] is the j-th sample for prompt i
Figures = dict[str, float]
Graded = tuple[TrainQuestion, Group, Scored]


class Share(Protocol):
    """Divides work on items among a job's workers (`Ranks.map`), all of which get the results, in order."""

    def __call__(self, items: Sequence[T], work: Callable[[list[T]], Sequence[R]]) -> list[R]: ...


def alone(items: Sequence[T], work: Callable[[list[T]], Sequence[R]]) -> list[R]:
    """The `Share` of a single worker."""
    return list(work(list(items)))


@dataclass(frozen=True, slots=True)
class Rewarded:
    """The scores of a step's rollouts, one entry per prompt, and the step's figures."""

    groups: list[Scored]
    metrics: Figures
    clusters: list[tuple[int, ...] | None] = field(default_factory=list)  # empty for a Challenger's step
    contents: list[list[Content]] = field(default_factory=list)  # needed if the job stores rollouts
    graded: list[Graded] = field(default_factory=list)  # empty for a Challenger's step


@dataclass(frozen=True, slots=True)
class PromptRollouts:
    """The G rollouts of one of the Solver's prompts."""

    question: TrainQuestion
    texts: Sequence[str]
    seed: int  # of what the method draws for this group (`group_seed`)
    mean_entropies: Sequence[float] | None = None  # (G,), nats per token; None if the trainer does not provide them


def group_seed(run_seed: int, job: str, step: int, prompt: int) -> int:
    """The seed of what a method draws for one prompt's rollouts, in its rewards and in its estimator.

    `step` counts from the beginning of the training, so over all its jobs; `prompt` is the position in the step.
    """
    return seed_for(run_seed, job, step, "sets", prompt)


def reward_solver(
    prompts: Sequence[PromptRollouts],
    method: Method,
    signals: Signals,
    grader: Grader,
    share: Share = alone,
    before: Sequence[Graded] = (),
) -> Rewarded:
    """Score the rollouts of a Solver's step with the job's method, and compute the step's figures.

    `before` are the step's earlier prompts, which were scored already; the result has them, too. Raises
    `InferenceError` when a service that computes signals fails.
    """

    def scores_of(own: list[PromptRollouts]) -> list[tuple[Group, Scored]]:
        answers = [[extract_boxed(text) for text in prompt.texts] for prompt in own]
        groups = [
            replace(group, question_id=prompt.question.question_id, seed=prompt.seed)
            for group, prompt in zip(
                make_groups(answers, [prompt.question.label for prompt in own], grader), own, strict=True
            )
        ]
        if "mean_entropy" in method.needs:
            entropies = [None if prompt.mean_entropies is None else np.array(prompt.mean_entropies) for prompt in own]
            groups = [replace(group, mean_entropy=entropy) for group, entropy in zip(groups, entropies, strict=True)]
        texts = [(prompt.question.text, prompt.texts) for prompt in own]
        with_all = [(group, score_group(group, method)) for group in with_signals(groups, texts, method, signals)]
        # The embeddings are large and no longer needed, so they are dropped before the groups go to other workers.
        return [(replace(group, embeddings=None), scored) for group, scored in with_all]

    new = [(prompt.question, *of_prompt) for prompt, of_prompt in zip(prompts, share(prompts, scores_of), strict=True)]
    graded = [*before, *new]
    figures = solver_figures(
        [question for question, *_ in graded], [(group, score) for _, group, score in graded], method, grader
    )
    contents = [solver_contents(*of_prompt) for of_prompt in graded]
    scores, clusters = [score for *_, score in graded], [group.clusters for _, group, _ in graded]
    return Rewarded(scores, figures, clusters, contents, graded)


def solver_figures(
    questions: Sequence[TrainQuestion], scored: Sequence[tuple[Group, Scored]], method: Method, grader: Grader
) -> Figures:
    """The figures of a step.

    - `unparsed_share`: the share of rollouts without an answer.
    - `undecided_share`, if labels come with the questions: the share of rollouts that were left out, because the grader
      could not decide whether their answer equals the label.
    - `majority_share`: the mean share of a group's rollouts that agree with its majority. A self-rewarding method
      maximises it, whatever its reward is called.
    - `same_label_share`: the largest share of the step's different questions that have the same majority answer, or 0
      when no two questions share one. Near 1, the answer no longer depends on the question (SRT 4.1.1).
    - `positive_labels` and `negative_labels`, if the method makes its labels itself: how many prompts it gave a label,
      and how many answers it took for wrong (SCRL, Figure 3).
    - the method's own figures, each a mean over the groups that have it, and the figures of `_label_figures`,
      `_strategy_figures` and `_right_and_wrong_figures`.
    """
    groups = [group for group, _ in scored]
    answers = [answer for group in groups for answer in group.answers]
    majorities = {question.question_id: group.vote.answer for question, group in zip(questions, groups, strict=True)}
    majority_counts = Counter(answer for answer in majorities.values() if answer is not None)
    largest = max(majority_counts.values(), default=0)
    figures = {
        "unparsed_share": answers.count(None) / len(answers),
        "majority_share": sum(group.vote.votes / group.vote.m for group in groups) / len(groups),
        "same_label_share": largest / len(majorities) if largest > 1 else 0.0,
    }
    scores = [score for _, score in scored]
    if method.labels == "offline":
        figures["undecided_share"] = sum(len(score.undecided) for score in scores) / len(answers)
    if method.labels == "online":
        figures["positive_labels"] = float(sum(score.label is not None for score in scores))
        figures["negative_labels"] = float(sum(len(score.negatives) for score in scores))
    for name in dict.fromkeys(name for score in scores for name in score.parts):
        values = [score.parts[name] for score in scores if name in score.parts]
        figures[name] = sum(values) / len(values)
    figures |= _label_figures(questions, scores, grader) | _strategy_figures(groups)
    right = agreements([group.answers for group in groups], [question.truth for question in questions], grader)
    return figures | _right_and_wrong_figures(groups, right)


def _label_figures(questions: Sequence[TrainQuestion], scored: Sequence[Scored], grader: Grader) -> Figures:
    """The accuracy of the step's labels, measured on the prompts whose truth is known; empty if there are none.

    Each share comes with its n, the number of different questions that it is measured on:

    - `labelled_share`, n = `truths_known`: the share of prompts that the method gave a label. It abstains on the rest.
    - `label_accuracy`, n = `labels_checked`: the share of labels that are right.
    - `negative_label_accuracy`, n = `negatives_checked`: of a question's answers that the method treats as wrong
      (SCRL 3.3), the share that is wrong; a mean over the questions that have such answers.

    An undecided comparison counts as a mistake of the method, unless label and truth are one text: the grader does not
    find every text equal to itself (`core.grading.points`).
    """
    with_truth = [
        (question, question.truth, score)
        for question, score in zip(questions, scored, strict=True)
        if question.truth is not None
    ]
    positives = [(question, score.label, truth) for question, truth, score in with_truth if score.label is not None]
    negatives = [(question, answer, truth) for question, truth, score in with_truth for answer in score.negatives]
    of_labels = grader.compare_many([(label, truth) for _, label, truth in positives])
    labels_right = [
        comparison.verdict == "equal" or label == truth == question.label
        for (question, label, truth), comparison in zip(positives, of_labels, strict=True)
    ]
    negatives_right: dict[str, list[bool]] = {}  # by question
    of_negatives = grader.compare_many([(answer, truth) for _, answer, truth in negatives])
    for (question, *_), comparison in zip(negatives, of_negatives, strict=True):
        negatives_right.setdefault(question.question_id, []).append(comparison.verdict == "unequal")
    figures: Figures = {}
    if with_truth:
        figures |= {
            "truths_known": _count_questions(with_truth),
            "labelled_share": len(positives) / len(with_truth),
        }
    if positives:
        figures |= {
            "labels_checked": _count_questions(positives),
            "label_accuracy": sum(labels_right) / len(labels_right),
        }
    if negatives_right:
        accuracies = [sum(verdicts_of) / len(verdicts_of) for verdicts_of in negatives_right.values()]
        figures |= {
            "negatives_checked": len(negatives_right),
            "negative_label_accuracy": sum(accuracies) / len(accuracies),
        }
    return figures


def _strategy_figures(groups: Sequence[Group]) -> Figures:
    """How many strategies the rollouts show, whether or not the method rewards them (Poly-EPO 6.1).

    Over the prompts whose strategies are known, if there are any:

    - `clusters`: the mean number of distinct strategies of a prompt's rollouts.
    - `degenerate_share`: the mean share of a prompt's rollouts that have no strategy.
    """
    known = [group.clusters for group in groups if group.clusters is not None]
    if not known:
        return {}
    return {
        "clusters": fmean(count_strategies(clusters) for clusters in known),
        "degenerate_share": fmean(clusters.count(DEGENERATE) / len(clusters) for clusters in known),
    }


def _right_and_wrong_figures(
    groups: Sequence[Group], right_rollouts: Sequence[Sequence[bool | None] | None]
) -> Figures:
    """The figures of right rollouts and of wrong ones, over the prompts whose truth is known; empty if there are none.

    `right_rollouts` says of each rollout (G,) of a prompt whether its answer is the truth; it is None if the truth is
    not known. A rollout without an answer is wrong. One whose answer the grader cannot decide on is neither.

    - `right_prompt_share`: the share of prompts with at least one right rollout (Poly-EPO, Figure 2).
    - `right_clusters`, `wrong_clusters`: the mean number of distinct strategies among a prompt's right rollouts, and
      among its wrong ones, where strategies are known (Poly-EPO, Figures 2 and 5). It is 0 for a prompt without any.
    - `right_entropy`, `wrong_entropy`: the mean token entropy of the right rollouts, and of the wrong ones, in nats per
      token, where entropies are known (SCRL, Table 8). There is no figure if there is no such rollout.
    """
    known = [(group, right) for group, right in zip(groups, right_rollouts, strict=True) if right is not None]
    figures = {"right_prompt_share": fmean(any(right) for _, right in known)} if known else {}
    for name, is_right in (("right", True), ("wrong", False)):
        chosen = [(group, [is_answer_right is is_right for is_answer_right in right]) for group, right in known]
        strategies = [
            count_strategies(compress(group.clusters, mask)) for group, mask in chosen if group.clusters is not None
        ]
        entropies = [
            entropy
            for group, mask in chosen
            if group.mean_entropy is not None
            for entropy in compress(group.mean_entropy.tolist(), mask)
        ]
        if strategies:
            figures[f"{name}_clusters"] = fmean(strategies)
        if entropies:
            figures[f"{name}_entropy"] = fmean(entropies)
    return figures


def _count_questions(prompts: Sequence[tuple[TrainQuestion, Any, Any]]) -> int:
    return len({question.question_id for question, *_ in prompts})


def reward_challenger(
    texts: Sequence[Sequence[str]],
    config: ChallengerReward,
    service: SolverService,
    seed: Callable[[int], int],
    ask: Ask,
    grader: Grader,
    share: Share = alone,
    *,
    draw: int = 0,
    earlier: Sequence[str] = (),
    exact: bool = False,
) -> Rewarded:
    """The rewards of a Challenger's step and its figures: the Solver votes on each well-formed question (R-Zero 2.2).

    `texts` are the rollouts of each prompt, equally many; the questions of all of them are one batch. `seed` turns the
    index of a question in the step into the seed of the Solver's samples, and `draw` is the seed of what the reward
    draws. `earlier` and `exact` are those of the job.

    The figures are the share of malformed questions, and means of the reward's parts over the well-formed questions, if
    there are any, with the tokens that their votes took.
    """
    questions = [
        parse_question(text, service.max_question_chars, config.format, control_tokens=service.control_tokens)
        for group in texts
        for text in group
    ]
    well_formed = [(index, question) for index, question in enumerate(questions) if question is not None]

    def votes_on(own: list[tuple[int, str]]) -> list[tuple[PseudoLabel, Spent]]:
        prompts = [
            Prompt(tuple(service.template.messages(question)), seed(index), config.votes, service.sampling)
            for index, question in own
        ]
        replies = ask(prompts)
        answers = [[extract_boxed(reply.text) for reply in group] for group in replies]
        votes = vote_many(answers, grader, service.denominator)
        return [(vote, spent([group])) for vote, group in zip(votes, replies, strict=True)]

    asked = dict(zip((index for index, _ in well_formed), share(well_formed, votes_on), strict=True))
    votes = [asked[index][0] if index in asked else None for index in range(len(questions))]
    posed = [None if text is None or not exact else worlds.solve(text) is not None for text in questions]
    scores = config.scores(Asked(questions, votes, draw, earlier, posed))
    figures = {"malformed_share": 1 - len(well_formed) / len(scores)}
    if labels := [vote for vote in votes if vote is not None]:
        parts = [scores[index].parts for index, _ in well_formed]
        for name in dict.fromkeys(name for part in parts for name in part):
            if name not in ("malformed", "cluster_size"):
                figures[name] = fmean(part[name] for part in parts if name in part)
        if "cluster_size" in parts[0]:
            figures["repeated_share"] = sum(part["cluster_size"] > 1 for part in parts) / len(parts)
        figures["unparsed_share"] = 1 - sum(label.parsed for label in labels) / sum(label.m for label in labels)
    total = sum((tokens for _, tokens in asked.values()), Spent())
    figures |= {f"reward_{name}": float(amount) for name, amount in asdict(total).items() if total.requests}
    size = len(texts[0])
    groups, contents = list[Scored](), list[list[Content]]()
    for start in range(0, len(scores), size):
        group = scores[start : start + size]
        values = np.array([score.value for score in group])
        groups.append(Scored(None, values, rollout_parts=tuple(score.parts for score in group)))
        contents.append([Content(None, question) for question in questions[start : start + size]])
    return Rewarded(groups, figures, contents=contents)
