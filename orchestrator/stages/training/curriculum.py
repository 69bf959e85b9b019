"""Selects the given prompts that the Solver trains on, and their labels."""

from __future__ import annotations

from collections.abc import Sequence

from core.grading.answers import answer_key
from core.questions.filtering import easiest
from core.settings.prompts import Prompts
from core.types import Question
from orchestrator.stages.context import Context, StageError
from storage import queries
from storage.rows import RolloutRow
from trainers.base import TrainQuestion


def given_questions(context: Context, prompts: Prompts) -> tuple[TrainQuestion, ...]:
    """The prompts to train on, in order, with their labels: the easiest share of the usable prompts, by the majority
    share or the pass rate of the starting model (SRT 5.3).

    A duplicate is not usable, nor is a prompt without a vote's label if the labels are offline. Each prompt carries its
    true answer, which only the figures use. Raises `StageError` if no prompt is usable.
    """
    by_pass_rate = prompts.easiest < 1 and prompts.easiest_by == "pass_rate"
    with context.store.read() as session:
        run = queries.forks.made_by(session, context.run.name, 0)  # whose iteration 0 has the prompts
        questions = {question.id: question for question in queries.questions.questions_of(session, run, 0)}
        rows = queries.questions.labels_of(session, run, 0)
        votes: dict[str, list[RolloutRow]] = {}
        for vote in queries.questions.rollouts_of(session, run, 0) if by_pass_rate else ():
            votes.setdefault(vote.question_id, []).append(vote)
    offline = prompts.labels == "offline"
    usable = [
        row
        for row in rows
        if row.verdict != "duplicate" and (not offline or (row.label is not None and row.label.answer is not None))
    ]
    if prompts.easiest < 1:
        if by_pass_rate:
            scores = [_pass_rate(questions[row.question_id], votes.get(row.question_id, [])) for row in usable]
        else:
            scores = [row.label.p_hat if row.label else 0.0 for row in usable]
        usable = [usable[i] for i in easiest(scores, prompts.easiest)]
    if not usable:
        raise StageError(
            f"run {context.run}: prompts: expected some to train on, but none of the {len(rows)} has a label"
        )
    chosen = list[TrainQuestion]()
    for row in usable:
        truth = questions[row.question_id].answer
        label = truth if prompts.labels == "given" else None
        if offline and row.label is not None:
            label = row.label.answer
        chosen.append(TrainQuestion(row.question_id, row.text or "", label, truth))
    return tuple(chosen)


def _pass_rate(question: Question, votes: Sequence[RolloutRow]) -> float:
    """How often the starting model answered a prompt right.

    Answers are compared by their keys (text and exact numbers). The grader is not used: its comparisons may time out,
    and a resumed run could then train on other prompts.
    """
    truth = answer_key(question.answer or "")
    right = sum(vote.answer is not None and answer_key(vote.answer) == truth for vote in votes)
    return right / max(1, len(votes))
