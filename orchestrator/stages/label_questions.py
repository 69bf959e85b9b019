"""Asks S(t-1) m times about each question, and stores the votes, the pseudo-label and the verdict (R-Zero 2.3).

If the roles share a model, C(t) is asked. Given prompts are asked of the base model, and all that have a majority are
kept. If the run has gates, `admit_questions` goes on with what is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from core.grading.answers import extract_boxed
from core.grading.grader import process_grader
from core.questions.filtering import FilterStats, band_verdict, filter_questions, statistics
from core.questions.voting import vote_many
from core.settings.config import Votes
from core.types import LabelledQuestion, Question, Rollout
from orchestrator.ledger import LastWrite
from orchestrator.plan import stages_of
from orchestrator.question_sets.held_out import held_out_texts
from orchestrator.run import BATCH
from orchestrator.stages.context import Context
from services.inference.client import spent
from services.inference.engines.base import Prompt
from storage import queries
from storage.files.texts import TextWriter, texts_path


def label_questions(context: Context) -> LastWrite:
    run, t, config, solver = context.run.name, context.iteration, context.config, context.checkpoint("solver")
    with context.store.read() as session:
        questions = queries.questions.questions_of(session, run, t)
        labelled_ids = {row.question_id for row in queries.questions.labels_of(session, run, t)}
    refused = filter_questions(questions, held_out_texts(config))  # question id -> verdict; the Solver is not asked
    asked = [question for question in questions if question.id not in refused]
    batches = [(number, asked[start : start + BATCH]) for number, start in enumerate(range(0, len(asked), BATCH))]
    remaining = [
        (number, batch) for number, batch in batches if not all(question.id in labelled_ids for question in batch)
    ]
    writer = TextWriter(texts_path(context.run.home.texts, run, t, "label_questions"), context.refuse_lost)

    def prompt(question: Question) -> Prompt:
        messages = config.solver.template.messages(question.text or "")
        seed = context.seed("label", question.index)
        return Prompt(tuple(messages), seed, config.dataset.votes, config.dataset.sampling)

    prompts = ([prompt(question) for question in batch] for _, batch in remaining)
    with (
        context.serving({"solver": solver}),
        context.replies_in_order("solver", solver, prompts) as replies_of_batches,
    ):
        context.progress(len(asked) - sum(len(batch) for _, batch in remaining), len(asked), "questions labelled")
        for (number, batch), replies in zip(remaining, replies_of_batches, strict=True):
            groups = [
                [
                    Rollout(
                        question_id=question.id,
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
                    for i, reply in enumerate(group)
                ]
                for question, group in zip(batch, replies, strict=True)
            ]
            labels = labelled(batch, [[rollout.answer for rollout in group] for group in groups], config.dataset)
            with_text = [
                rollout
                for group, label in zip(groups, labels, strict=True)
                if config.keeps_text(kept=label.verdict == "kept")
                for rollout in group
            ]
            writer.add(number, with_text)
            with context.write() as session:
                queries.questions.add_rollouts(session, [rollout for group in groups for rollout in group])
                queries.questions.add_labels(session, labels)
                queries.usage.add_usage(session, context.key, "votes", spent(replies))
            context.batch_done(min((number + 1) * BATCH, len(asked)), len(asked), "questions labelled")
    writer.finish()
    with context.store.write() as session:
        queries.questions.gather_statistics(session)
    texts = {question.id: question.text for question in questions}

    def last_write(session: Session) -> dict[str, Any]:
        unasked = [LabelledQuestion(key, texts[key], None, verdict) for key, verdict in refused.items()]
        queries.questions.add_labels(session, unasked)
        stats = statistics(queries.questions.labels_of(session, run, t))
        if "admit_questions" not in stages_of(config, t):  # which stores the statistics of the final verdicts
            queries.figures.add_filter_stats(session, run=run, iteration=t, stats=stats)
        return result_of(stats)

    return last_write


def result_of(stats: FilterStats) -> dict[str, Any]:
    """The stage's result: the statistics before any gate has refused a question."""
    return {name: value for name, value in asdict(stats).items() if name != "refused"}


def labelled(
    questions: Sequence[Question], answers: Sequence[Sequence[str | None]], dataset: Votes
) -> list[LabelledQuestion]:
    """The pseudo-label and the verdict that each question gets by the answers of its votes."""
    votes = vote_many(answers, process_grader(), dataset.denominator)
    return [
        LabelledQuestion(question.id, question.text, label, band_verdict(label, dataset.limits))
        for question, label in zip(questions, votes, strict=True)
    ]
