"""Reading an iteration's questions as a person does: some of them, in an order, a page at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

from sqlalchemy import ColumnElement, Integer, Select, and_, bindparam, func, select, tuple_
from sqlalchemy.orm import Session

from core.types import OracleLabel, OracleVerdict, PseudoLabel, Question, Verdict
from storage.errors import NotThere
from storage.models import OracleLabels, PseudoLabels, QuestionClusters, Questions
from storage.queries.questions import label_of
from storage.queries.tables import columns, table_of
from storage.rows import AuditCount, QuestionEntry, QuestionSummary

Sort = Literal["index", "-index", "p_hat", "-p_hat"]
_QUESTIONS, _LABELS, _ORACLES = table_of(Questions), table_of(PseudoLabels), table_of(OracleLabels)
_CLUSTERS = table_of(QuestionClusters)
_OF_QUESTION = _LABELS.c.question_id == _QUESTIONS.c.id
_FIELDS = len(Question.__dataclass_fields__)
_ENTRY = (*columns(Questions, Question), _LABELS.c.verdict, *columns(PseudoLabels, PseudoLabel))
_OF_QUESTIONS = ("id", "run", "iteration", "index", "text", "checkpoint", "seed")
_SUMMARY = tuple(
    (_QUESTIONS if field.name in _OF_QUESTIONS else _LABELS).c[field.name] for field in fields(QuestionSummary)[:-1]
)
_COUNTED = (
    select(_LABELS.c.verdict, _LABELS.c.p_hat, func.count())
    .where(_LABELS.c.run == bindparam("run"), _LABELS.c.iteration == bindparam("iteration"))
    .group_by(_LABELS.c.verdict, _LABELS.c.p_hat)
    .order_by(_LABELS.c.verdict, _LABELS.c.p_hat)
)
# In the text of the statement: PostgreSQL plans one with a limit that it does not know anew each time, which
# takes longer than to run it.
_LIMIT = bindparam("limit", type_=Integer, literal_execute=True)


@dataclass(frozen=True, slots=True)
class QuestionFilter:
    """Which questions; what is not given does not matter. Bounds are inclusive."""

    verdicts: tuple[Verdict, ...] = ()
    p_hat_min: float | None = None
    p_hat_max: float | None = None
    text: str | None = None  # is in the question's, in either case
    oracle: str | None = None  # has said something of the label
    oracle_verdict: OracleVerdict | None = None  # and this; by any oracle where none is named
    cluster: int | None = None  # of questions that are alike


def list_questions(
    session: Session,
    run: str,
    iteration: int,
    wanted: QuestionFilter,
    *,
    sort: Sort = "index",
    after: Sequence[float] = (),
    limit: int = 50,
) -> list[QuestionSummary]:
    """A page of an iteration's questions with their labels and what oracles said of them.

    `after` is the `sort_key_of` of the last entry of the page before, in the same order. In order of p_hat there are
    only those that were voted on.
    """
    given = {**_given(wanted), **{f"after_{name}": at for name, at in zip(_order(sort), after, strict=False)}}
    parameters = {"run": run, "iteration": iteration, "limit": limit}
    rows = _read(session, _page(sort, frozenset(given)), {**parameters, **given}, len(_SUMMARY))
    return [QuestionSummary(*row) for row in rows]


def sort_key_of(question: QuestionSummary, sort: Sort) -> tuple[float, ...]:
    """Where a question is in an order: what `browse` goes on after."""
    if not sort.endswith("p_hat"):
        return (question.index,)
    if question.p_hat is None:
        raise ValueError(f"question {question.id}: expected one with votes in order of p_hat")
    return (question.p_hat, question.index)


def get_question(session: Session, question_id: str) -> QuestionEntry:
    """One question, its label with all classes, and what oracles said. Raises `NotThere`."""
    rows = _read(session, _one(), {"id": question_id}, len(_ENTRY))
    for row in rows:
        verdict, *label, oracles = row[_FIELDS:]
        return QuestionEntry(Question(*row[:_FIELDS]), verdict, label_of(label), oracles)
    raise NotThere(f"question {question_id!r}: there is none of this id")


def vote_counts(session: Session, run: str, iteration: int) -> list[tuple[Verdict, float | None, int]]:
    """(verdict, p_hat, questions) of an iteration, by verdict and p_hat; None: never asked."""
    rows: Iterable[Any] = session.execute(_COUNTED, {"run": run, "iteration": iteration})
    return [(verdict, p_hat, count) for verdict, p_hat, count in rows]


def audit_counts(session: Session, run: str, iteration: int) -> list[AuditCount]:
    """What oracles said of an iteration's pseudo-labels, counted by oracle and verdict."""
    key = (PseudoLabels.iteration, OracleLabels.oracle, PseudoLabels.verdict, OracleLabels.verdict)
    same = [getattr(OracleLabels, name) == getattr(PseudoLabels, name) for name in ("run", "iteration", "index")]
    counted = select(*key, func.count()).select_from(PseudoLabels).join(OracleLabels, and_(*same))
    of_iteration = [PseudoLabels.run == run, PseudoLabels.iteration == iteration]
    rows: Iterable[Any] = session.execute(counted.where(*of_iteration).group_by(*key).order_by(*key))
    return [AuditCount(*row) for row in rows]


def _order(sort: Sort) -> tuple[str, ...]:
    return ("p_hat", "index") if sort.endswith("p_hat") else ("index",)


def _given(wanted: QuestionFilter) -> dict[str, Any]:
    """The values that are given, by the names that `_conditions` has for them."""
    one = wanted.verdicts[0] if len(wanted.verdicts) == 1 else None
    given = {
        "verdict": one,
        "verdicts": None if one else wanted.verdicts or None,
        "p_hat_min": wanted.p_hat_min,
        "p_hat_max": wanted.p_hat_max,
        "text": wanted.text and re.sub("[/%_]", r"/\g<0>", wanted.text),
        "oracle": wanted.oracle,
        "oracle_verdict": wanted.oracle_verdict,
        "cluster": wanted.cluster,
    }
    return {name: value for name, value in given.items() if value is not None}


@lru_cache(maxsize=1_024)
def _page(sort: Sort, given: frozenset[str]) -> Select[*tuple[Any, ...]]:
    """The statement for an order and what is given; it is kept, since making it takes longer than running it."""
    # From the table whose index has the rows in this order: in that of the labels a verdict's are together.
    by_label = sort.endswith("p_hat") or "verdict" in given
    table = _LABELS if by_label else _QUESTIONS
    joined = _LABELS.join(_QUESTIONS, _OF_QUESTION) if by_label else _QUESTIONS.outerjoin(_LABELS, _OF_QUESTION)
    of_iteration = [table.c[name] == bindparam(name) for name in ("run", "iteration")]
    statement = select(*_SUMMARY).select_from(joined).where(*of_iteration, *_conditions(given))
    if sort.endswith("p_hat"):
        statement = statement.where(_LABELS.c.p_hat.is_not(None))
    order, down = [table.c[name] for name in _order(sort)], sort.startswith("-")
    if "after_index" in given:
        row, last = tuple_(*order), tuple_(*(bindparam(f"after_{column.name}", type_=column.type) for column in order))
        statement = statement.where(row < last if down else row > last)
    page = statement.order_by(*(column.desc() if down else column for column in order)).limit(_LIMIT)
    return _with_oracles(page, _order(sort), down)


@lru_cache
def _one() -> Select[*tuple[Any, ...]]:
    statement = select(*_ENTRY).select_from(_QUESTIONS.outerjoin(_LABELS, _OF_QUESTION))
    return _with_oracles(statement.where(_QUESTIONS.c.id == bindparam("id")), ("index",), False)


def _with_oracles(statement: Select[*tuple[Any, ...]], order: Sequence[str], down: bool) -> Select[*tuple[Any, ...]]:
    """The same rows in the same order, each once for every oracle that has said something, and once without any."""
    page = statement.subquery()
    label_columns = columns(OracleLabels, OracleLabel)[1:]
    joined = select(page, *label_columns).outerjoin(_ORACLES, _ORACLES.c.question_id == page.c.id)
    keys = (page.c[name] for name in order)
    return joined.order_by(*(key.desc() if down else key for key in keys), _ORACLES.c.oracle)


def _conditions(given: frozenset[str]) -> Iterator[ColumnElement[bool]]:
    """A question without a label yet is there unless labels are asked of."""
    label, labelled = _LABELS.c, select(_ORACLES.c.question_id).where(_ORACLES.c.question_id == _LABELS.c.question_id)
    plain = {
        "verdict": label.verdict == bindparam("verdict"),
        "verdicts": label.verdict.in_(bindparam("verdicts", expanding=True)),
        "p_hat_min": label.p_hat >= bindparam("p_hat_min"),
        "p_hat_max": label.p_hat <= bindparam("p_hat_max"),
        "text": _QUESTIONS.c.text.icontains(bindparam("text", type_=_QUESTIONS.c.text.type), escape="/"),
        "cluster": _QUESTIONS.c.id.in_(
            select(_CLUSTERS.c.question_id).where(
                *(_CLUSTERS.c[name] == bindparam(name) for name in ("run", "iteration", "cluster"))
            )
        ),
    }
    yield from (condition for name, condition in plain.items() if name in given)
    of_oracles = {
        "oracle": _ORACLES.c.oracle == bindparam("oracle"),
        "oracle_verdict": _ORACLES.c.verdict == bindparam("oracle_verdict"),
    }
    if given & of_oracles.keys():
        yield labelled.where(*(condition for name, condition in of_oracles.items() if name in given)).exists()


def _read(
    session: Session, statement: Select[*tuple[Any, ...]], given: Mapping[str, Any], width: int
) -> Iterator[Sequence[Any]]:
    """The fields of each question, `width` of them, and as one more what oracles said of it."""
    for key, rows in groupby(session.connection().execute(statement, given).all(), key=itemgetter(0)):
        every = list(rows)
        yield *every[0][:width], tuple(OracleLabel(key, *row[width:]) for row in every if row[width] is not None)
