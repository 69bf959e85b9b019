"""The stages that make the Solver's data set: `generate_questions` and `label_questions` (R-Zero 2.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from core.grading.answers import extract_boxed
from core.grading.grader import process_grader
from core.questions.filtering import filter_questions, judge, statistics
from core.questions.prompts import challenger_messages, parse_question, solver_messages
from core.questions.similarity import clusters
from core.questions.voting import vote_many
from core.settings.config import CoEvolution, SelfTraining
from core.types import LabelledQuestion, Question, Rollout, Verdict, question_id
from orchestrator.ledger import LastWrite
from orchestrator.question_sets.held_out import held_out_texts
from orchestrator.question_sets.prompts import read_prompts as read_prompt_set
from orchestrator.stages.context import BATCH, Context
from services.inference.client import Reply
from services.inference.engines.base import Prompt
from storage import queries
from storage.rows import ClusterRow
from storage.texts import TextWriter

_CHALLENGER_N = 64  # questions asked for in one request
_MOST_COMPARED = 10_000  # whose distances take 400 MB


def generate_questions(context: Context[CoEvolution]) -> LastWrite:
    """N candidates from C(t); malformed ones are stored too (R-Zero 2.3)."""
    t, wanted = context.iteration, context.config.dataset.candidates
    challenger = context.checkpoint("challenger", t)
    with context.store.read() as session:
        done = queries.questions.count_questions(session, context.run, t)
    starts = range(done - done % BATCH, wanted, BATCH)
    batches = ([*_challenger_prompts(context, start, min(start + BATCH, wanted))] for start in starts)
    with (
        context.serving({"challenger": challenger}),
        context.asked_in_turn("challenger", challenger, batches) as answered,
    ):
        context.progress(done, wanted, "questions")
        for start, replies in zip(starts, answered, strict=True):
            written = [reply for group in replies for reply in group]
            questions = [_question(context, start + i, reply) for i, reply in enumerate(written)]
            with context.store.write() as session:
                queries.questions.add_questions(session, questions)
            context.progress(start + len(written), wanted, "questions")
    with context.store.read() as session:
        alike = _clusters(context, queries.questions.questions_of(session, context.run, t))

    def last_write(session: Session) -> dict[str, Any]:
        queries.traces.add_clusters(session, alike)
        return {"candidates": wanted, "challenger": challenger.id}

    return last_write


def _clusters(context: Context[CoEvolution], questions: Sequence[Question]) -> list[ClusterRow]:
    """Which questions are alike, as the Challenger's reward has it of a batch; the largest cluster is 0.

    None of more questions than can be compared: the distances are as many as there are pairs.
    """
    asked = [question for question in questions if question.text is not None]
    if len(asked) > _MOST_COMPARED:
        return []
    clustered = clusters([question.text or "" for question in asked], context.config.challenger.reward.bleu_distance)
    sizes = Counter(clustered).most_common()
    rank = {cluster: number for number, (cluster, _) in enumerate(sizes)}
    size = dict(sizes)
    return [
        ClusterRow(question.id, context.run, context.iteration, rank[cluster], size[cluster])
        for question, cluster in zip(asked, clustered, strict=True)
    ]


def _challenger_prompts(context: Context[CoEvolution], start: int, end: int) -> Iterator[Prompt]:
    first, sampling = context.seed("generate"), context.config.challenger.training.sampling
    for i in range(start, end, _CHALLENGER_N):
        yield Prompt(tuple(challenger_messages()), first + i, min(_CHALLENGER_N, end - i), sampling)


def _question(context: Context, index: int, reply: Reply) -> Question:
    text = parse_question(reply.text, context.config.dataset.max_question_chars)
    identity = question_id(context.run, context.iteration, index)
    return Question(identity, context.run, context.iteration, index, text, reply.text, reply.checkpoint, reply.seed)


def label_questions(context: Context) -> LastWrite:
    """m answers each from S(t-1), the vote, the verdict (R-Zero 2.3); of given prompts, from the base model, and all
    that have a majority are kept."""
    t, dataset = context.iteration, context.config.dataset
    solver = context.checkpoint("solver", t - 1)
    with context.store.read() as session:
        questions = queries.questions.questions_of(session, context.run, t)
        labelled = {row.question_id for row in queries.questions.labels_of(session, context.run, t)}
    refused = refused_questions(context, questions)
    asked = [question for question in questions if question.id not in refused]
    writer = TextWriter(context.home.texts, context.run, t, "label_questions")
    whole = [(batch, asked[start : start + BATCH]) for batch, start in enumerate(range(0, len(asked), BATCH))]
    parts = [(batch, part) for batch, part in whole if not all(question.id in labelled for question in part)]
    prompts = ([_vote_prompt(context, question) for question in part] for _, part in parts)
    with (
        context.serving({"solver": solver}),
        context.asked_in_turn("solver", solver, prompts) as answered,
    ):
        for (batch, part), sampled in zip(parts, answered, strict=True):
            context.progress(batch * BATCH, len(asked), "questions labelled")
            groups = [_rollouts(question.id, replies) for question, replies in zip(part, sampled, strict=True)]
            answers = [[rollout.answer for rollout in group] for group in groups]
            votes = vote_many(answers, process_grader(), dataset.denominator)
            labels = [
                LabelledQuestion(question.id, question.text, label, judge(label, dataset.limits))
                for question, label in zip(part, votes, strict=True)
            ]
            writer.add(batch, _with_text(context, groups, labels))
            with context.store.write() as session:
                queries.questions.add_rollouts(session, [rollout for group in groups for rollout in group])
                queries.questions.add_labels(session, labels)
    context.progress(len(asked), len(asked), "questions labelled")
    writer.finish()
    with context.store.write() as session:
        queries.questions.gather_statistics(session)
    return lambda session: _finish_labels(session, context, questions, refused)


def refused_questions(context: Context, questions: Sequence[Question]) -> dict[str, Verdict]:
    """The questions that are not put to the Solver, the held-out ones among them."""
    return filter_questions(questions, held_out_texts(context.config))


def read_prompts(context: Context[SelfTraining]) -> LastWrite:
    """The given prompts as questions that nobody wrote; those that are asked before training get their labels then."""
    config, run = context.config, context.run
    prompts = read_prompt_set(config, config.prompts)
    questions = [
        Question(question_id(run, 0, i), run, 0, i, prompt.text, prompt.text, None, 0, prompt.answer)
        for i, prompt in enumerate(prompts)
    ]
    refused = refused_questions(context, questions)

    def last_write(session: Session) -> dict[str, Any]:
        queries.questions.add_questions(session, questions)
        if not config.prompts.voted:
            labelled = [
                LabelledQuestion(question.id, question.text, None, refused.get(question.id, "kept"))
                for question in questions
            ]
            queries.questions.add_labels(session, labelled)
            queries.figures.add_filter_stats(session, run=run, iteration=0, stats=statistics(labelled))
            queries.questions.gather_statistics(session)
        return {"prompts": len(questions), "refused": len(refused)}

    return last_write


def _finish_labels(
    session: Session, context: Context, questions: Sequence[Question], refused: Mapping[str, Verdict]
) -> dict[str, Any]:
    never_asked = [
        LabelledQuestion(question.id, question.text, None, refused[question.id])
        for question in questions
        if question.id in refused
    ]
    queries.questions.add_labels(session, never_asked)
    stats = statistics(queries.questions.labels_of(session, context.run, context.iteration))
    queries.figures.add_filter_stats(session, run=context.run, iteration=context.iteration, stats=stats)
    return asdict(stats)


def _vote_prompt(context: Context, question: Question) -> Prompt:
    dataset = context.config.dataset
    seed = context.seed("label", question.index)
    return Prompt(tuple(solver_messages(question.text or "")), seed, dataset.votes, dataset.sampling)


def _rollouts(identity: str, replies: Sequence[Reply]) -> list[Rollout]:
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


def _with_text(
    context: Context, groups: Sequence[Sequence[Rollout]], labels: Sequence[LabelledQuestion]
) -> list[Rollout]:
    """The rollouts whose texts are to be stored, as the run's `rollout_text` says."""
    keep = context.config.rollout_text
    return [
        rollout
        for group, label in zip(groups, labels, strict=True)
        if keep == "all" or (keep == "kept" and label.verdict == "kept")
        for rollout in group
    ]
