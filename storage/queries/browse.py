"""Reads an iteration's questions for a list of them: filtered, sorted, a page at a time."""

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
from storage.letter_case import capitals
from storage.models import OracleLabels, PseudoLabels, QuestionClusters, Questions, Rollouts
from storage.queries.questions import label_of
from storage.queries.tables import columns, table_of
from storage.rows import AuditCount, QuestionEntry, QuestionSummary

Sort = Literal["index", "-index", "p_hat", "-p_hat"]
_QUESTIONS, _LABELS, _ORACLES = table_of(Questions), table_of(PseudoLabels), table_of(OracleLabels)
_CLUSTERS = table_of(QuestionClusters)
_IS_OF_QUESTION = _LABELS.c.question_id == _QUESTIONS.c.id
_QUESTION_WIDTH = len(Question.__dataclass_fields__)
_ENTRY_COLUMNS = (*columns(Questions, Question), _LABELS.c.verdict, _LABELS.c.gate, *columns(PseudoLabels, PseudoLabel))
_FROM_QUESTIONS = ("id", "run", "iteration", "index", "text", "checkpoint", "seed")
_GIVEN_ANSWER = _QUESTIONS.c.answer.label("given_answer")
_SUMMARY_COLUMNS = tuple(
    _GIVEN_ANSWER
    if field.name == _GIVEN_ANSWER.name
    else (_QUESTIONS if field.name in _FROM_QUESTIONS else _LABELS).c[field.name]
    for field in fields(QuestionSummary)[:-1]
)
_VERDICT_COUNTS = (
    select(_LABELS.c.verdict, _LABELS.c.p_hat, func.count())
    .where(_LABELS.c.run == bindparam("run"), _LABELS.c.iteration == bindparam("iteration"))
    .group_by(_LABELS.c.verdict, _LABELS.c.p_hat)
    .order_by(_LABELS.c.verdict, _LABELS.c.p_hat)
)
# The limit is written into the text of the statement. If it were a parameter, PostgreSQL would plan the statement anew
# each time, which takes longer than to run it.
_LIMIT = bindparam("limit", type_=Integer, literal_execute=True)


@dataclass(frozen=True, slots=True)
class QuestionFilter:
    """Which questions to list. A field that is None or empty does not filter. Bounds are inclusive."""

    verdicts: tuple[Verdict, ...] = ()
    p_hat_min: float | None = None
    p_hat_max: float | None = None
    text: str | None = None  # contained in the question's text, ignoring case
    oracle: str | None = None  # it has graded the question
    oracle_verdict: OracleVerdict | None = None  # given by `oracle`, or by any oracle if that is None
    cluster: int | None = None  # number of a cluster of similar questions


def list_questions(
    session: Session,
    run: str,
    iteration: int,
    filters: QuestionFilter,
    *,
    sort: Sort = "index",
    after: Sequence[float] = (),
    limit: int = 50,
) -> list[QuestionSummary]:
    """A page of an iteration's questions with their labels and the oracles' verdicts.

    `after` is the `sort_key_of` of the last question of the previous page, in the same order. In order of p_hat, only
    questions that were voted on are listed.
    """
    optional = {**_parameters(filters), **{f"after_{name}": at for name, at in zip(_order(sort), after, strict=False)}}
    parameters = {"run": run, "iteration": iteration, "limit": limit, **optional}
    rows = _read(session, _page(sort, frozenset(optional)), parameters, len(_SUMMARY_COLUMNS))
    return [QuestionSummary(*row) for row in rows]


def count_rows(session: Session, run: str, iteration: int, filters: QuestionFilter) -> tuple[int, int]:
    """How many questions of an iteration match the filters, and how many votes these questions have."""
    parameters = {"run": run, "iteration": iteration, **_parameters(filters)}
    joined = _QUESTIONS.outerjoin(_LABELS, _IS_OF_QUESTION)
    of_iteration = [_QUESTIONS.c[name] == bindparam(name) for name in ("run", "iteration")]
    matching = select(_QUESTIONS.c.id).select_from(joined).where(*of_iteration, *_conditions(frozenset(parameters)))
    questions = select(func.count()).select_from(matching.subquery())
    votes = select(func.count()).select_from(Rollouts).where(Rollouts.question_id.in_(matching))
    return session.scalar(questions, parameters) or 0, session.scalar(votes, parameters) or 0


def sort_key_of(question: QuestionSummary, sort: Sort) -> tuple[float, ...]:
    """The position of a question in an order. `list_questions` takes it as `after`."""
    if not sort.endswith("p_hat"):
        return (question.index,)
    if question.p_hat is None:
        raise ValueError(f"question {question.id}: expected a question with a p_hat to sort by, got one without votes")
    return (question.p_hat, question.index)


def get_question(session: Session, question_id: str) -> QuestionEntry:
    """One question, its label with all answer classes, and the oracles' verdicts. Raises `NotThere`."""
    rows = _read(session, _entry(), {"id": question_id}, len(_ENTRY_COLUMNS))
    for row in rows:
        verdict, gate, *label, oracles = row[_QUESTION_WIDTH:]
        return QuestionEntry(Question(*row[:_QUESTION_WIDTH]), verdict, gate, label_of(label), oracles)
    raise NotThere(f"question {question_id!r}: no question has this id")


def vote_counts(session: Session, run: str, iteration: int) -> list[tuple[Verdict, float | None, int]]:
    """(verdict, p_hat, number of questions) of an iteration, by verdict and p_hat. p_hat is None if they were never
    asked."""
    rows: Iterable[Any] = session.execute(_VERDICT_COUNTS, {"run": run, "iteration": iteration})
    return [(verdict, p_hat, count) for verdict, p_hat, count in rows]


def audit_counts(session: Session, run: str, iteration: int) -> list[AuditCount]:
    """The oracles' verdicts in an iteration, counted by oracle, verdict of the filter and verdict of the oracle."""
    key = (PseudoLabels.iteration, OracleLabels.oracle, PseudoLabels.verdict, OracleLabels.verdict)
    same = [getattr(OracleLabels, name) == getattr(PseudoLabels, name) for name in ("run", "iteration", "index")]
    counted = select(*key, func.count()).select_from(PseudoLabels).join(OracleLabels, and_(*same))
    of_iteration = [PseudoLabels.run == run, PseudoLabels.iteration == iteration]
    rows: Iterable[Any] = session.execute(counted.where(*of_iteration).group_by(*key).order_by(*key))
    return [AuditCount(*row) for row in rows]


def _order(sort: Sort) -> tuple[str, ...]:
    return ("p_hat", "index") if sort.endswith("p_hat") else ("index",)


def _parameters(filters: QuestionFilter) -> dict[str, Any]:
    """The values of the filters that are set, by their parameter names in `_conditions`."""
    verdict = filters.verdicts[0] if len(filters.verdicts) == 1 else None
    values = {
        "verdict": verdict,
        "verdicts": None if verdict else filters.verdicts or None,
        "p_hat_min": filters.p_hat_min,
        "p_hat_max": filters.p_hat_max,
        "text": filters.text and re.sub("[/%_]", r"/\g<0>", filters.text),
        "oracle": filters.oracle,
        "oracle_verdict": filters.oracle_verdict,
        "cluster": filters.cluster,
    }
    return {name: value for name, value in values.items() if value is not None}


@lru_cache(maxsize=1_024)
def _page(sort: Sort, names: frozenset[str]) -> Select[*tuple[Any, ...]]:
    """The statement for an order and for the names of the parameters that are set. It is cached, because building it
    takes longer than running it."""
    # Read from the table whose index has the rows in this order. In the index of the labels, the rows of one verdict
    # are together.
    by_label = sort.endswith("p_hat") or "verdict" in names
    table = _LABELS if by_label else _QUESTIONS
    joined = _LABELS.join(_QUESTIONS, _IS_OF_QUESTION) if by_label else _QUESTIONS.outerjoin(_LABELS, _IS_OF_QUESTION)
    of_iteration = [table.c[name] == bindparam(name) for name in ("run", "iteration")]
    statement = select(*_SUMMARY_COLUMNS).select_from(joined).where(*of_iteration, *_conditions(names))
    if sort.endswith("p_hat"):
        statement = statement.where(_LABELS.c.p_hat.is_not(None))
    order, descending = [table.c[name] for name in _order(sort)], sort.startswith("-")
    if "after_index" in names:
        row, last = tuple_(*order), tuple_(*(bindparam(f"after_{column.name}", type_=column.type) for column in order))
        statement = statement.where(row < last if descending else row > last)
    page = statement.order_by(*(column.desc() if descending else column for column in order)).limit(_LIMIT)
    return _with_oracles(page, _order(sort), descending)


@lru_cache
def _entry() -> Select[*tuple[Any, ...]]:
    statement = select(*_ENTRY_COLUMNS).select_from(_QUESTIONS.outerjoin(_LABELS, _IS_OF_QUESTION))
    return _with_oracles(statement.where(_QUESTIONS.c.id == bindparam("id")), ("index",), False)


def _with_oracles(
    statement: Select[*tuple[Any, ...]], order: Sequence[str], descending: bool
) -> Select[*tuple[Any, ...]]:
    """Join the oracles' labels, in the same order. A row appears once per oracle that graded it, and at least once."""
    page = statement.subquery()
    label_columns = columns(OracleLabels, OracleLabel)[1:]
    joined = select(page, *label_columns).outerjoin(_ORACLES, _ORACLES.c.question_id == page.c.id)
    keys = (page.c[name] for name in order)
    return joined.order_by(*(key.desc() if descending else key for key in keys), _ORACLES.c.oracle)


def _conditions(names: frozenset[str]) -> Iterator[ColumnElement[bool]]:
    """The conditions of the filters that are set. A condition on the label leaves out questions that have none yet."""
    label = _LABELS.c
    oracle_labels = select(_ORACLES.c.question_id).where(_ORACLES.c.question_id == label.question_id)
    conditions = {
        "verdict": label.verdict == bindparam("verdict"),
        "verdicts": label.verdict.in_(bindparam("verdicts", expanding=True)),
        "p_hat_min": label.p_hat >= bindparam("p_hat_min"),
        "p_hat_max": label.p_hat <= bindparam("p_hat_max"),
        "text": capitals(_QUESTIONS.c.text).contains(
            capitals(bindparam("text", type_=_QUESTIONS.c.text.type)), escape="/"
        ),
        "cluster": _QUESTIONS.c.id.in_(
            select(_CLUSTERS.c.question_id).where(
                *(_CLUSTERS.c[name] == bindparam(name) for name in ("run", "iteration", "cluster"))
            )
        ),
    }
    yield from (condition for name, condition in conditions.items() if name in names)
    of_oracles = {
        "oracle": _ORACLES.c.oracle == bindparam("oracle"),
        "oracle_verdict": _ORACLES.c.verdict == bindparam("oracle_verdict"),
    }
    if names & of_oracles.keys():
        yield oracle_labels.where(*(condition for name, condition in of_oracles.items() if name in names)).exists()


def _read(
    session: Session, statement: Select[*tuple[Any, ...]], parameters: Mapping[str, Any], width: int
) -> Iterator[Sequence[Any]]:
    """Yield the `width` fields of each question, followed by one more: a tuple of the oracles' labels."""
    for question_id, group in groupby(session.connection().execute(statement, parameters).all(), key=itemgetter(0)):
        rows = list(group)
        yield *rows[0][:width], tuple(OracleLabel(question_id, *row[width:]) for row in rows if row[width] is not None)
