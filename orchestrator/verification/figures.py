"""The series and the oracles' labels that they rest on."""

from __future__ import annotations

import math
from collections.abc import Iterable

from sqlalchemy.orm import Session

from orchestrator.stages.auditing import audited_labels
from orchestrator.verification.checks import Check, shown
from orchestrator.verification.subject import Subject
from services.drift.series import OF_LABELS, estimated_points, points_of
from services.oracles import human
from storage import queries
from storage.rows import SeriesPoint

# Relative to a figure's value. Sums of the same numbers in another order differ by rounding, and an interval's end is a
# root of such a difference.
_TOLERANCE = 1e-6
_LEAST_TOLERANCE = 1e-12  # for values near 0

_RECOMPUTED = ("exact", "given")  # oracles that need no service and no program of the user's

_Key = tuple[int, str, str, str]  # iteration, name, over, oracle


def series(check: Check, subject: Subject) -> None:
    """The measured series of each finished iteration, but for those of oracles, are what the other tables give."""
    _measured(check, subject, of_labels=False)


def label_accuracy(check: Check, subject: Subject) -> None:
    """Label accuracy and the share of ill-posed questions of each finished iteration are what the oracles' labels
    give."""
    _measured(check, subject, of_labels=True)


def _measured(check: Check, subject: Subject, *, of_labels: bool) -> None:
    for t in subject.finished:
        with subject.store.read() as session:
            expected = points_of(session, subject.name, t)
            stored = [point for point in _stored(session, subject) if point.iteration == t and not point.estimated]
        _compare(check, *([p for p in points if (p.name in OF_LABELS) == of_labels] for points in (expected, stored)))


def estimates(check: Check, subject: Subject) -> None:
    """Estimated label accuracy is what p_hat and the audits of other iterations give.

    They are computed anew when questions are labelled, and once an audit is over: at the end of the iteration if it is
    the run's own, and of the sample if people label it. Until then they are those of the time before, and left out.
    """
    with subject.store.read() as session:
        expected = estimated_points(session, subject.name)
        stored = [point for point in _stored(session, subject) if point.estimated]
        by_people = queries.audits.oracles_of(session, subject.name).get(human.ORACLE, [])
        in_progress = {human.ORACLE for t in by_people if not human.is_over(session, subject.name, t)}
        stages = queries.ledger.stages_of(session, subject.name)
    ended = {row.iteration for row in stages if row.stage == "check_health" and row.status == "done"}
    if in_progress:
        check.notes.append("people have not finished a sample, so estimates from their labels are left out")
    if any(row.stage == "audit_labels" and row.iteration not in {0, *ended} for row in stages):
        check.notes.append("the iteration of an audit is not finished, so no estimate is checked")
        return
    chosen = [
        [point for point in points if point.iteration in subject.finished and point.oracle not in in_progress]
        for points in (expected, stored)
    ]
    _compare(check, *chosen)


def _stored(session: Session, subject: Subject) -> list[SeriesPoint]:
    return queries.series.series_of(session, subject.name)


def _compare(check: Check, expected: Iterable[SeriesPoint], stored: Iterable[SeriesPoint]) -> None:
    expected_by_key, stored_by_key = ({_key(point): point for point in points} for points in (expected, stored))
    for key in sorted(expected_by_key | stored_by_key):
        point, stored_point = expected_by_key.get(key), stored_by_key.get(key)
        check.checked += 1
        if point is None or stored_point is None or not _equal(point, stored_point):
            check.violate(_row(key), _text(point), _text(stored_point))


def _equal(a: SeriesPoint, b: SeriesPoint) -> bool:
    tolerance, pairs = _TOLERANCE * abs(a.value) + _LEAST_TOLERANCE, ((a.value, b.value), (a.lo, b.lo), (a.hi, b.hi))
    return a.n == b.n and all(_close(x, y, tolerance) for x, y in pairs)


def _close(a: float | None, b: float | None, tolerance: float) -> bool:
    return a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=0.0, abs_tol=tolerance))


def _key(point: SeriesPoint) -> _Key:
    return point.iteration, point.name, point.over, point.oracle


def _row(key: _Key) -> str:
    iteration, name, over, oracle = key
    return f"series {name}{f' of {over}' if over else ''}{f' by {oracle}' if oracle else ''}, iteration {iteration}"


def _text(point: SeriesPoint | None) -> str:
    return shown(point and (point.value, point.lo, point.hi, point.n))


def oracle_labels(check: Check, subject: Subject) -> None:
    """The labels of the run's own audits. Those of the oracles `exact` and `given` follow from the question's text, or
    from its given answer, and are recomputed; other oracles are not asked again."""
    undecided = 0
    audit = subject.config.audit
    for t, result in subject.done("audit_labels"):
        if audit.oracle is None or audit.oracle not in _RECOMPUTED:
            continue
        with subject.store.read() as session:
            stored = {
                label.question_id: label
                for label in queries.questions.oracle_labels_of(session, subject.name, t, audit.oracle)
            }
        expected = {label.question_id: label for label in audited_labels(subject.store, subject.name, t, audit)}
        check.expect(f"result of audit_labels {t}: audited", len(expected), result.get("audited"))
        for key in sorted(expected | stored):
            verdicts = [labels[key].verdict if key in labels else None for labels in (expected, stored)]
            if len({*verdicts}) > 1 and audit.oracle == "given" and "unknown" in verdicts:
                undecided += 1
            else:
                check.expect(f"{key}: verdict of {audit.oracle}", *verdicts)
    if undecided:
        check.notes.append(f"{undecided} labels: the grader could not decide the same comparisons as in the run")
