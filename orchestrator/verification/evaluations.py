"""Evaluations: the counts of each question, from its answers, and what the stages' results say of them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from core.grading.answers import normalise
from core.grading.grader import process_grader
from core.grading.kinds import AnswerKind, compare_many
from core.questions.voting import Classes, classify_many
from core.types import GREEDY, Evaluated, EvaluatedAnswer, PseudoLabel, checkpoint_id, evaluation_id
from orchestrator.question_sets.benchmarks import evaluated_in
from orchestrator.verification.checks import Check
from orchestrator.verification.lineage import playing
from orchestrator.verification.subject import Subject
from services.evaluations import items_of
from storage import queries
from storage.rows import EvaluationRow


def evaluated_items(check: Check, subject: Subject) -> None:
    """The counts of each question of the run's evaluations are those of its answers. The classes of equal answers are
    found again, by the grader; the verdict on each answer is the stored one."""
    without_answers = 0
    with subject.store.read() as session:
        rows = queries.evaluations.of_run(session, subject.name)
    for row in rows:
        with subject.store.read() as session:
            results = queries.evaluations.results_of(session, row.id)
            answers = queries.evaluations.answers_of(session, row.id)
            truths = {item.id: item.answer for item in items_of(session, row)}
        if results and not answers and not row.manifest:
            without_answers += 1
        else:
            _items(check, row, results, answers, truths)
    if without_answers:
        check.notes.append(f"{without_answers} evaluations are of a version of coevo that did not store the answers")


def _items(
    check: Check,
    row: EvaluationRow,
    results: list[Evaluated],
    answers: list[EvaluatedAnswer],
    truths: Mapping[str, str],
) -> None:
    kind: AnswerKind = row.manifest.get("grader", {}).get("answers", "math")
    stored = {result.item_id: result for result in results}
    by_item = {item: [*group] for item, group in groupby(answers, key=lambda answer: answer.item_id)}
    votes = classify_many(
        [[answer.answer for answer in _sampled(group)] for group in by_item.values()],
        process_grader() if kind == "math" else None,
    )
    recomputed = dict(zip(by_item, votes, strict=True))
    for item in sorted(stored | by_item):
        name, result = f"{row.benchmark}, {row.model}, question {item}", stored.get(item)
        if result is None or item not in by_item:
            check.expect(name, "answers and counts", "only counts" if result else "only answers")
            continue
        label, classes = recomputed[item]
        expected = _counts(by_item[item]) | _majority(kind, label, by_item[item], truths.get(item))
        check.expect_fields(name, expected, {field: getattr(result, field) for field in expected})
        _classes(check, name, by_item[item], label, classes)


def _sampled(answers: list[EvaluatedAnswer]) -> list[EvaluatedAnswer]:
    """The sampled answers; without any, the greedy one counts as the only sample."""
    return [answer for answer in answers if answer.sample_index != GREEDY] or answers


def _counts(answers: list[EvaluatedAnswer]) -> dict[str, object]:
    sampled, greedy = _sampled(answers), [answer for answer in answers if answer.sample_index == GREEDY]
    return {
        "samples": len(sampled),
        "correct": sum(answer.verdict == "equal" for answer in sampled),
        "greedy_correct": greedy[0].verdict == "equal" if greedy else None,
    }


def _majority(
    kind: AnswerKind, label: PseudoLabel, answers: list[EvaluatedAnswer], truth: str | None
) -> dict[str, object]:
    """Whether the majority's answer is right. The grader gives all answers of one spelling the same verdict; answers of
    other kinds are compared here. Empty if that cannot be known."""
    if label.answer is None:
        return {"majority_correct": False}
    if kind == "math":
        spelled = [answer.verdict for answer in answers if answer.answer and normalise(answer.answer) == label.answer]
        return {"majority_correct": "equal" in spelled}
    if truth is None:
        return {}
    return {"majority_correct": compare_many(kind, [(label.answer, truth)], process_grader()) == ["equal"]}


def _classes(check: Check, name: str, answers: list[EvaluatedAnswer], label: PseudoLabel, classes: Classes) -> None:
    """Compare the sampled answers' indices and classes, if the grader could decide all comparisons."""
    sampled = [answer for answer in answers if answer.sample_index != GREEDY]
    indices = [answer.sample_index for answer in sampled]
    if indices != [*range(len(sampled))] or len(sampled) + 1 != len(answers):
        check.violate(f"{name}: sample indices", f"0 to {len(sampled) - 1} and {GREEDY}", str(indices))
    elif sampled and not label.unknown and [*classes] != (stored := [answer.answer_class for answer in sampled]):
        check.violate(f"{name}: classes of the answers", str([*classes]), str(stored))


def evaluations(check: Check, subject: Subject) -> None:
    """A stage that evaluates asked the checkpoint that the chain says, on all of the run's benchmarks, to the end."""
    for t, result in subject.done("evaluate"):
        with subject.store.read() as session:
            expected = playing(session, subject, "solver", t, "evaluate")
        _stage(check, subject, f"evaluate of iteration {t}", expected, result)
    for t, result in subject.done("evaluate_labelled"):
        expected = checkpoint_id(subject.name, "labelled", t)
        _stage(check, subject, f"evaluate_labelled of iteration {t}", expected, result)


def _stage(check: Check, subject: Subject, name: str, checkpoint: str, result: Mapping[str, Any]) -> None:
    items = 0
    for benchmark in evaluated_in(subject.config):
        with subject.store.read() as session:
            row = queries.evaluations.find_evaluation(session, evaluation_id(checkpoint, benchmark))
            items += len(queries.evaluations.results_of(session, row.id)) if row else 0
        ended = "no evaluation" if row is None else "not finished" if row.finished_at is None else "finished"
        check.expect(f"{name}: evaluation of {checkpoint} on {benchmark}", "finished", ended)
    check.expect_fields(f"result of {name}", {"checkpoint": checkpoint, "items": items}, result)
