"""Questions, votes and verdicts: the prompts of the two roles, and the rows that their replies become (R-Zero 2.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from core.grading.answers import extract_boxed
from core.grading.grader import process_grader
from core.questions.filtering import band_verdict, filter_questions
from core.questions.parsing import parse_question
from core.questions.similarity import clusters
from core.questions.voting import vote_many
from core.settings.config import CoEvolution, Votes
from core.types import LabelledQuestion, Question, Rollout, Verdict, question_id
from orchestrator.question_sets.held_out import held_out_texts
from orchestrator.stages.context import Context
from services.inference.client import Reply
from services.inference.engines.base import Prompt
from storage.rows import ClusterRow

_QUESTIONS_PER_REQUEST = 64
_MAX_COMPARED = 10_000  # questions; their distances take 400 MB


def clusters_of(context: Context[CoEvolution], questions: Sequence[Question]) -> list[ClusterRow]:
    """The clusters of similar questions, found as the Challenger's reward finds them in a batch; 0 is the largest.

    Empty if there are too many questions to compare, since every pair has a distance.
    """
    well_formed = [question for question in questions if question.text is not None]
    if len(well_formed) > _MAX_COMPARED:
        return []
    texts = [question.text or "" for question in well_formed]
    cluster_of = clusters(texts, context.config.challenger.reward.bleu_distance)
    sizes = Counter(cluster_of).most_common()
    rank = {cluster: number for number, (cluster, _) in enumerate(sizes)}
    size = dict(sizes)
    return [
        ClusterRow(question.id, context.run, context.iteration, rank[cluster], size[cluster])
        for question, cluster in zip(well_formed, cluster_of, strict=True)
    ]


def challenger_prompts(context: Context[CoEvolution], start: int, end: int) -> Iterator[Prompt]:
    challenger, first = context.config.challenger, context.seed("generate")
    messages = tuple(challenger.template.messages())
    for i in range(start, end, _QUESTIONS_PER_REQUEST):
        yield Prompt(messages, first + i, min(_QUESTIONS_PER_REQUEST, end - i), challenger.training.sampling)


def question_of(context: Context[CoEvolution], index: int, reply: Reply, solver_tokens: Sequence[str]) -> Question:
    """The question in a candidate; `solver_tokens` are the control tokens of the model that will be asked."""
    dataset, expected = context.config.dataset, context.config.challenger.reward.format
    text = parse_question(reply.text, dataset.max_question_chars, expected, dataset.refused_texts, solver_tokens)
    identity = question_id(context.run, context.iteration, index)
    return Question(identity, context.run, context.iteration, index, text, reply.text, reply.checkpoint, reply.seed)


def refused_questions(context: Context, questions: Sequence[Question]) -> dict[str, Verdict]:
    """The questions that the Solver is not asked, held-out ones among them: question id -> verdict."""
    return filter_questions(questions, held_out_texts(context.config))


def vote_prompt(context: Context, question: Question) -> Prompt:
    dataset = context.config.dataset
    seed = context.seed("label", question.index)
    messages = context.config.solver.template.messages(question.text or "")
    return Prompt(tuple(messages), seed, dataset.votes, dataset.sampling)


def rollouts_of(identity: str, replies: Sequence[Reply]) -> list[Rollout]:
    return [
        Rollout(
            question_id=identity,
            sample_index=i,
            text=reply.text,
            answer=extract_boxed(reply.text),
            tokens=reply.tokens,
            finish_reason=reply.finish_reason,
            mean_entropy=reply.mean_entropy,
            entropy_error=reply.entropy_error,
            checkpoint=reply.checkpoint,
            seed=reply.seed,
        )
        for i, reply in enumerate(replies)
    ]


def labelled(
    questions: Sequence[Question], answers: Sequence[Sequence[str | None]], dataset: Votes
) -> list[LabelledQuestion]:
    """The pseudo-label and the verdict that each question gets by the answers of its votes."""
    votes = vote_many(answers, process_grader(), dataset.denominator)
    return [
        LabelledQuestion(question.id, question.text, label, band_verdict(label, dataset.limits))
        for question, label in zip(questions, votes, strict=True)
    ]


def rollouts_with_text(
    context: Context, groups: Sequence[Sequence[Rollout]], labels: Sequence[LabelledQuestion]
) -> list[Rollout]:
    """The rollouts whose texts the run's setting `rollout_text` says to store."""
    return [
        rollout
        for group, label in zip(groups, labels, strict=True)
        if context.config.keeps_text(kept=label.verdict == "kept")
        for rollout in group
    ]
