"""Reading an iteration's questions as a person does: some of them, in an order, a page at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, func, select, tuple_
from sqlalchemy.orm import Session

from core.types import OracleLabel, OracleVerdict, PseudoLabel, Question, Verdict
from storage.errors import NotThere
from storage.models import OracleLabels, PseudoLabels, Questions
from storage.queries.questions import label_of
from storage.queries.tables import columns
from storage.rows import AuditCount, QuestionEntry

Sort = Literal["index", "-index", "p_hat", "-p_hat"]
_LABEL = (PseudoLabels.verdict, *(getattr(PseudoLabels, name) for name in PseudoLabel.__dataclass_fields__))


@dataclass(frozen=True, slots=True)
class QuestionFilter:
    """Which questions; what is not given does not matter. Bounds are inclusive."""

    verdicts: tuple[Verdict, ...] = ()
    p_hat_min: float | None = None
    p_hat_max: float | None = None
    text: str | None = None  # is in the question's, in either case
    oracle: str | None = None  # has said something of the label
    oracle_verdict: OracleVerdict | None = None  # and this; by any oracle where none is named


def browse(
    session: Session,
    run: str,
    iteration: int,
    wanted: QuestionFilter,
    *,
    sort: Sort = "index",
    after: Sequence[float] = (),
    limit: int = 50,
) -> list[QuestionEntry]:
    """A page of an iteration's questions with their labels and what oracles said of them.

    `after` is `place_of` the last entry of the page before, in the same order. In order of p_hat there are only those
    that were voted on.
    """
    by_label = sort.endswith("p_hat")
    order: tuple[Any, ...] = (PseudoLabels.p_hat, PseudoLabels.index) if by_label else (Questions.index,)
    found = _joined(by_label, run, iteration, wanted).limit(limit)
    if after:
        row, last = tuple_(*order), tuple_(*after)
        found = found.where(row < last if sort.startswith("-") else row > last)
    found = found.order_by(*(column.desc() if sort.startswith("-") else column for column in order))
    entries = [_entry(row) for row in session.execute(found)]
    return _with_oracles(session, entries)


def place_of(entry: QuestionEntry, sort: Sort) -> tuple[float, ...]:
    """Where an entry is in an order: what `browse` goes on after."""
    if not sort.endswith("p_hat"):
        return (entry.question.index,)
    if entry.label is None:
        raise ValueError(f"question {entry.question.id}: expected one with votes in order of p_hat")
    return (entry.label.p_hat, entry.question.index)


def get_question(session: Session, question_id: str) -> QuestionEntry:
    """One question, its label with all classes, and what oracles said. Raises `NotThere`."""
    found = select(*columns(Questions, Question), *_LABEL).outerjoin(PseudoLabels).where(Questions.id == question_id)
    row = session.execute(found).one_or_none()
    if row is None:
        raise NotThere(f"question {question_id!r}: there is none of this id")
    return _with_oracles(session, [_entry(row)])[0]


def vote_counts(session: Session, run: str, iteration: int) -> list[tuple[Verdict, float, int]]:
    """(verdict, p_hat, questions) of an iteration, by p_hat: a histogram whose bins are the shares that there are."""
    counted = select(PseudoLabels.verdict, PseudoLabels.p_hat, func.count())
    voted = [PseudoLabels.run == run, PseudoLabels.iteration == iteration, PseudoLabels.p_hat.is_not(None)]
    grouped = counted.where(*voted).group_by(PseudoLabels.verdict, PseudoLabels.p_hat)
    found: Iterable[Any] = session.execute(grouped.order_by(PseudoLabels.p_hat))
    return [(verdict, p_hat, count) for verdict, p_hat, count in found]


def audit_counts(session: Session, run: str) -> list[AuditCount]:
    """What oracles said of a run's pseudo-labels, counted by iteration, oracle and verdict."""
    key = (PseudoLabels.iteration, OracleLabels.oracle, PseudoLabels.verdict, OracleLabels.verdict)
    counted = select(*key, func.count()).select_from(PseudoLabels).where(PseudoLabels.run == run)
    joined = counted.join(OracleLabels, OracleLabels.question_id == PseudoLabels.question_id)
    found: Iterable[Any] = session.execute(joined.group_by(*key).order_by(*key))
    return [AuditCount(*row) for row in found]


def _joined(by_label: bool, run: str, iteration: int, wanted: QuestionFilter) -> Select[*tuple[Any, ...]]:
    """From the table whose index has the order; a question without a label yet is there unless labels are asked of."""
    found = select(*columns(Questions, Question), *_LABEL)
    asked = _of_labels(wanted)
    if by_label:
        found = found.select_from(PseudoLabels).join(Questions).where(PseudoLabels.p_hat.is_not(None))
        place = [PseudoLabels.run == run, PseudoLabels.iteration == iteration]
    else:
        found = found.select_from(Questions).join(PseudoLabels, isouter=not asked)
        place = [Questions.run == run, Questions.iteration == iteration]
    if wanted.text:
        asked.append(Questions.text.icontains(wanted.text, autoescape=True))
    return found.where(*place, *asked)


def _of_labels(wanted: QuestionFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.verdicts:
        found.append(PseudoLabels.verdict.in_(wanted.verdicts))
    if wanted.p_hat_min is not None:
        found.append(PseudoLabels.p_hat >= wanted.p_hat_min)
    if wanted.p_hat_max is not None:
        found.append(PseudoLabels.p_hat <= wanted.p_hat_max)
    if wanted.oracle is not None or wanted.oracle_verdict is not None:
        said = select(OracleLabels.question_id).where(OracleLabels.question_id == PseudoLabels.question_id)
        if wanted.oracle is not None:
            said = said.where(OracleLabels.oracle == wanted.oracle)
        if wanted.oracle_verdict is not None:
            said = said.where(OracleLabels.verdict == wanted.oracle_verdict)
        found.append(said.exists())
    return found


def _entry(row: Sequence[Any]) -> QuestionEntry:
    count = len(Question.__dataclass_fields__)
    verdict, *label = row[count:]
    return QuestionEntry(Question(*row[:count]), verdict, label_of(label), ())


def _with_oracles(session: Session, entries: Sequence[QuestionEntry]) -> list[QuestionEntry]:
    ids = [entry.question.id for entry in entries]
    said = select(*columns(OracleLabels, OracleLabel)).where(OracleLabels.question_id.in_(ids))
    by_question: dict[str, list[OracleLabel]] = {}
    for row in session.execute(said.order_by(OracleLabels.oracle)):
        by_question.setdefault(row[0], []).append(OracleLabel(*row))
    return [
        QuestionEntry(each.question, each.verdict, each.label, tuple(by_question.get(each.question.id, ())))
        for each in entries
    ]
