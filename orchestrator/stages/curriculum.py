"""What the Solver learns from where prompts are given: which of them, and with which labels."""

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
    """The prompts that are trained on, in order: the easiest share of those that can be, with their labels.

    Without an offline label, or a given one, where the prompt set promises it, a prompt is left out. The truth goes
    along for the figures.
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
        asked = [votes.get(row.question_id, []) for row in usable]
        scores = _scores(prompts, usable, [questions[row.question_id] for row in usable], asked)
        usable = [usable[i] for i in easiest(scores, prompts.easiest)]
    if not usable:
        raise StageError(
            f"run {context.run}: prompts: expected some to train on, {len(labelled)} of them have no label"
        )
    return tuple(_train_question(prompts, row, questions[row.question_id]) for row in usable)


def _has_label(prompts: Prompts, row: LabelledQuestion) -> bool:
    return prompts.labels != "offline" or (row.label is not None and row.label.answer is not None)


def _scores(
    prompts: Prompts, rows: Sequence[LabelledQuestion], questions: Sequence[Question], votes: Sequence[list[RolloutRow]]
) -> list[float]:
    """How easy each prompt was for the starting model (SRT 5.3).

    For the pass rate answers are compared by their keys, text and exact numbers: a judge that may miss a deadline must
    not choose what is trained on, or a resumed run would train on something else.
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
