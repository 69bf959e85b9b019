"""From votes to pseudo-labels, verdicts and their statistics."""

from __future__ import annotations

from dataclasses import dataclass

from core.grading.grader import process_grader
from core.questions.filtering import band_verdict, filter_questions, statistics
from core.questions.voting import vote_many
from core.types import LabelledQuestion, PseudoLabel, Question, Verdict
from orchestrator.verification.checks import Check, fields_of
from orchestrator.verification.subject import Subject
from storage import queries
from storage.rows import RolloutRow

_NOT_GRADED = ("m", "parsed", "denominator")  # fields of a label that no comparison of answers decides


@dataclass(frozen=True, slots=True)
class _Iteration:
    """The questions of an iteration, their labels by question id, and the verdicts on those that are not asked."""

    questions: list[Question]
    labels: dict[str, LabelledQuestion]
    refused: dict[str, Verdict]


def votes(check: Check, subject: Subject) -> None:
    """A question that was asked has exactly m votes, with the sample indices 0 to m - 1; any other has none."""
    indices = [*range(subject.config.dataset.votes)]
    for t in subject.voted:
        rows, votes_of = _iteration(subject, t), votes_by_question(subject, t)
        for question in rows.questions:
            expected = [] if question.id in rows.refused else indices
            stored = [vote.sample_index for vote in votes_of.get(question.id, [])]
            check.expect(f"{question.id}: sample indices of the votes", expected, stored)


def pseudo_labels(check: Check, subject: Subject) -> None:
    """Each pseudo-label is what the votes give, by the grader and with the run's denominator.

    The grader may run out of time where it did not when the run voted, or the other way round. Of such a label only
    what needs no grading is compared.
    """
    undecided = 0
    for t in subject.voted:
        votes_of = votes_by_question(subject, t)
        voted = [(key, row.label) for key, row in _iteration(subject, t).labels.items() if row.label is not None]
        answers = [[vote.answer for vote in votes_of.get(key, [])] for key, _ in voted]
        recomputed = vote_many(answers, process_grader(), subject.config.dataset.denominator)
        for (key, stored), label in zip(voted, recomputed, strict=True):
            undecided += label.unknown != stored.unknown
            check.expect_fields(key, _comparable(label, stored), fields_of(stored))
    if undecided:
        check.notes.append(f"{undecided} pseudo-labels: the grader could not decide the same comparisons as in the run")


def _comparable(label: PseudoLabel, stored: PseudoLabel) -> dict[str, object]:
    values = fields_of(label)
    return values if label.unknown == stored.unknown else {name: values[name] for name in _NOT_GRADED}


def verdicts(check: Check, subject: Subject) -> None:
    """Each question has the verdict that follows from its text, or from its pseudo-label and the band."""
    for t in subject.labelled:
        rows, is_voted = _iteration(subject, t), t in subject.voted
        for question in rows.questions:
            row, refused = rows.labels.get(question.id), rows.refused.get(question.id)
            if row is not None and row.label is not None and refused is None:
                expected: str = band_verdict(row.label, subject.config.dataset.limits)
            else:
                expected = refused or ("a verdict with a pseudo-label" if is_voted else "kept")
            check.expect(f"{question.id}: verdict", expected, row.verdict if row else None)
    if subject.held_out is None:
        check.notes.append("a benchmark cannot be read here, so it is not checked which questions repeat one of it")


def filter_statistics(check: Check, subject: Subject) -> None:
    """The statistics of an iteration's candidates are those of its pseudo-labels and verdicts, in the table and in the
    stage's result."""
    for t in subject.labelled:
        with subject.store.read() as session:
            expected = fields_of(statistics(queries.questions.labels_of(session, subject.name, t)))
            stored = queries.figures.filter_stats_of(session, subject.name).get(t)
        check.expect_fields(f"filter_stats of iteration {t}", expected, fields_of(stored) if stored else {})
        if t in subject.voted:
            check.expect_fields(f"result of label_questions {t}", expected, subject.results[t, "label_questions"])


def votes_by_question(subject: Subject, iteration: int) -> dict[str, list[RolloutRow]]:
    """Question id -> its votes by sample index."""
    with subject.store.read() as session:
        rows = queries.questions.rollouts_of(session, subject.name, iteration)
    votes_of = dict[str, list[RolloutRow]]()
    for row in rows:
        votes_of.setdefault(row.question_id, []).append(row)
    return votes_of


def _iteration(subject: Subject, iteration: int) -> _Iteration:
    with subject.store.read() as session:
        questions = queries.questions.questions_of(session, subject.name, iteration)
        labels = {row.question_id: row for row in queries.questions.labels_of(session, subject.name, iteration)}
    refused = filter_questions(questions, subject.held_out or ())
    if subject.held_out is None:  # then any question may have repeated a held-out one
        repeated = [key for key, row in labels.items() if row.verdict == "duplicate" and key not in refused]
        refused |= dict.fromkeys(repeated, "duplicate")
    return _Iteration(questions, labels, refused)
