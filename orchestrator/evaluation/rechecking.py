"""Asks a judge about the stored answers of an evaluation. The model that gave them is not asked again."""

from __future__ import annotations

from typing import Any

from core.asking.judge import Judge
from core.errors import CoevoError
from core.judging.replies import Case, Claimed, Truth
from core.seeds import seed_for
from core.types import EvaluatedAnswer, JudgedAnswer
from orchestrator.evaluation.judging import ask_in_batches
from orchestrator.run import Progress
from services.evaluations.figures import items_of
from services.oracles.judge import JudgedBatch
from storage import queries
from storage.session import Store


class RecheckError(CoevoError):
    """An evaluation that no judge can be asked about; the message says what it lacks."""


def recheck(
    store: Store, key: str, settings: Judge, progress: Progress, *, failures_only: bool = False
) -> dict[str, Any]:
    """Ask a judge whether the answers of an evaluation are right, and store its verdicts batch by batch.

    The judge is shown an answer and the true one (R-Zero E.3). The same answer to the same question is asked about
    once, and not again once its verdict is stored; a reply without an answer is not asked about. `failures_only` leaves
    out the answers that the grader calls right. The result says what this took. Raises `NotThere`, `RecheckError`,
    `JudgeError`, `InferenceError`, `GradingError`.
    """
    if settings.prompt != "equivalence":
        raise RecheckError(f"prompt: expected equivalence, which shows the true answer, got {settings.prompt}")
    with store.read() as session:
        row = queries.evaluations.get_evaluation(session, key)
        items = {item.id: item for item in items_of(session, row)}
        answers = queries.evaluations.answers_of(session, key)
        judged = queries.evaluations.judged_of(session, key)
    if not items or not answers:
        missing = "answers" if items else "questions with true answers"
        raise RecheckError(f"evaluation {key}, {row.benchmark}: expected stored {missing}, got none")
    # The item and the text of each different answer -> the answers that have this text.
    groups: dict[tuple[str, str], list[EvaluatedAnswer]] = {}
    for answer in answers:
        if answer.answer is not None and not (failures_only and answer.verdict == "equal"):
            groups.setdefault((answer.item_id, answer.answer), []).append(answer)
    cases = [
        Case(f"answer {i}", items[item].problem, Claimed(text), Truth(items[item].answer))
        for i, (item, text) in enumerate(groups)
    ]
    same = {case.key: group for case, group in zip(cases, groups.values(), strict=True)}
    known = {(answer.item_id, answer.sample_index) for answer in judged if answer.judge == settings.oracle}
    done = {case for case, group in same.items() if (group[0].item_id, group[0].sample_index) in known}

    def save(batch: JudgedBatch) -> None:
        verdicts = [
            JudgedAnswer(answer.item_id, answer.sample_index, label.oracle, label.verdict)
            for label in batch.labels
            for answer in same[label.question_id]
        ]
        with store.write() as session:
            queries.evaluations.add_judged(session, key, verdicts)

    what = f"answers to {row.benchmark}, by {settings.oracle}"
    cost = ask_in_batches(cases, done, settings, seed_for(0, "recheck", key), save, progress, what)
    return {"evaluation": key, "oracle": settings.oracle, **cost}
