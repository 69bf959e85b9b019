"""Selects the given prompts that the Solver trains on, and their labels."""

from __future__ import annotations

from collections.abc import Sequence

from core.grading.answers import answer_key
from core.questions.filtering import easiest
from core.settings.prompts import Prompts
from core.types import LabelledQuestion, Question
from orchestrator.stages.context import Context, StageError
from storage import queries
from storage.rows import RolloutRow
from trainers.base import TrainQuestion


def given_questions(context: Context, prompts: Prompts) -> tuple[TrainQuestion, ...]:
    """The prompts to train on, in order, with their labels: the easiest share of the usable prompts.

    A duplicate is not usable, nor is a prompt without a vote's label if the labels are offline. Each prompt carries its
    true answer, which only the figures use. Raises `StageError` if no prompt is usable.
    """
    with context.store.read() as session:
        questions = {question.id: question for question in queries.questions.questions_of(session, context.run, 0)}
        labelled = queries.questions.labels_of(session, context.run, 0)
        votes: dict[str, list[RolloutRow]] = {}
        by_pass_rate = prompts.easiest < 1 and prompts.easiest_by == "pass_rate"
        for row in queries.questions.rollouts_of(session, context.run, 0) if by_pass_rate else ():
            votes.setdefault(row.question_id, []).append(row)
    usable = [row for row in labelled if row.verdict != "duplicate" and _has_label(prompts, row)]
    if prompts.easiest < 1:
        votes_of_usable = [votes.get(row.question_id, []) for row in usable]
        scores = _scores(prompts, usable, [questions[row.question_id] for row in usable], votes_of_usable)
        usable = [usable[i] for i in easiest(scores, prompts.easiest)]
    if not usable:
        raise StageError(
            f"run {context.run}: prompts: expected some to train on, but none of the {len(labelled)} has a label"
        )
    return tuple(_train_question(prompts, row, questions[row.question_id]) for row in usable)


def _has_label(prompts: Prompts, row: LabelledQuestion) -> bool:
    return prompts.labels != "offline" or (row.label is not None and row.label.answer is not None)


def _scores(
    prompts: Prompts, rows: Sequence[LabelledQuestion], questions: Sequence[Question], votes: Sequence[list[RolloutRow]]
) -> list[float]:
    """How easy each prompt was for the starting model, by majority share or pass rate (SRT 5.3).

    The pass rate compares answers by their keys (text and exact numbers). The grader is not used: its comparisons may
    time out, and a resumed run could then train on other prompts.
    """
    if prompts.easiest_by == "majority":
        return [row.label.p_hat if row.label else 0.0 for row in rows]
    return [
        sum(vote.answer is not None and answer_key(vote.answer) == answer_key(question.answer or "") for vote in group)
        / max(1, len(group))
        for question, group in zip(questions, votes, strict=True)
    ]


def _train_question(prompts: Prompts, row: LabelledQuestion, question: Question) -> TrainQuestion:
    label = question.answer if prompts.labels == "given" else None
    if prompts.labels == "offline" and row.label is not None:
        label = row.label.answer
    return TrainQuestion(row.question_id, row.text or "", label, question.answer)
