"""A run's series: stored points, and the sums over many rows that points are computed from.

Votes are summed by question in the database, and questions here, once those that are kept and once the others. A figure
over all questions adds both sums.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, Float, Select, and_, case, cast, exists, func, select
from sqlalchemy.orm import Session

from core.statistics.audits import stratum_of
from core.statistics.estimates import Sums
from storage.models import AuditSamples, OracleLabels, PseudoLabels, QuestionClusters, Questions, Rollouts, Series
from storage.queries.tables import columns, find_rows, insert_into, table_of
from storage.rows import SeriesPoint

_PAGE = 2_000  # labels read at once


def put_series(session: Session, run: str, points: Iterable[SeriesPoint]) -> None:
    """Store points, and replace those of the same key. A measured point is never replaced by an estimate."""
    rows = [{"run": run, **asdict(point)} for point in points]
    if not rows:
        return
    insert = insert_into(session, Series)
    new_values = {name: insert.excluded[name] for name in ("value", "lo", "hi", "n", "estimated", "interval")}
    key = [column.name for column in table_of(Series).primary_key]
    estimate_over_measured = and_(insert.excluded.estimated, ~Series.estimated)
    session.execute(
        insert.on_conflict_do_update(index_elements=key, set_=new_values, where=~estimate_over_measured), rows
    )


def series_of(
    session: Session, run: str, name: str | None = None, *, over: str | None = None, oracle: str | None = None
) -> list[SeriesPoint]:
    """A run's points by name, over, oracle and iteration; only those of `name`, `over` or `oracle` if it is given."""
    given = ((Series.name, name), (Series.over, over), (Series.oracle, oracle))
    conditions = [Series.run == run, *(column == value for column, value in given if value is not None)]
    order = [Series.name, Series.over, Series.oracle, Series.iteration]
    return find_rows(session, Series, SeriesPoint, *conditions, order=order)


def series_of_runs(session: Session, runs: Sequence[str], names: Sequence[str]) -> dict[str, list[SeriesPoint]]:
    """Run -> its points of the named series, in the order of `series_of`; runs without any are left out."""
    statement = select(Series.run, *columns(Series, SeriesPoint)).where(Series.run.in_(runs), Series.name.in_(names))
    points: dict[str, list[SeriesPoint]] = {}
    rows = session.execute(statement.order_by(Series.run, Series.name, Series.over, Series.oracle, Series.iteration))
    for run, *values in rows:
        points.setdefault(run, []).append(SeriesPoint(*values))
    return points


def label_sums(session: Session, run: str, iteration: int) -> dict[str, dict[bool, Sums]]:
    """Sums of `p_hat`, of `unparsed`, the share of a question's votes that have no answer, and of `split`, which is 1
    for a question with 0 < p_hat < 1, over the questions that were voted on: name -> kept -> sums."""
    unparsed = 1.0 - cast(PseudoLabels.parsed, Float) / PseudoLabels.m
    split = case((and_(PseudoLabels.p_hat > 0, PseudoLabels.p_hat < 1), 1.0), else_=0.0)
    voted = [PseudoLabels.run == run, PseudoLabels.iteration == iteration, PseudoLabels.m > 0]
    by_question = select(_is_kept(), PseudoLabels.p_hat, unparsed, split).where(*voted)
    return _sums(session, by_question, ("p_hat", "unparsed", "split"))


def vote_sums(session: Session, run: str, iteration: int) -> dict[str, dict[bool, Sums]]:
    """Sums of `tokens`, the mean length of a question's votes, and of `truncated`, the share of its votes that were cut
    off at the token limit, over the questions that were voted on: name -> kept -> sums."""
    tokens = func.avg(cast(Rollouts.tokens, Float))
    truncated = func.avg(case((Rollouts.finish_reason == "length", 1.0), else_=0.0))
    joined = select(_is_kept(), tokens, truncated).join_from(
        PseudoLabels, Rollouts, Rollouts.question_id == PseudoLabels.question_id
    )
    of_iteration = [PseudoLabels.run == run, PseudoLabels.iteration == iteration]
    by_question = joined.where(*of_iteration).group_by(PseudoLabels.question_id, PseudoLabels.verdict)
    return _sums(session, by_question, ("tokens", "truncated"))


def _sums(session: Session, by_question: Select[*tuple[Any, ...]], names: Sequence[str]) -> dict[str, dict[bool, Sums]]:
    """Name -> kept -> sums of a statement that selects `kept` and a column of each name for each question.

    `fsum` gives the same digits in any order. A database adds the rows as they lie in it, which depends on what else
    was written, so a run that was interrupted would get other last digits.
    """
    values: dict[bool, list[Sequence[float]]] = {}
    for is_kept, *of_question in session.execute(by_question):
        values.setdefault(bool(is_kept), []).append(of_question)
    sums: dict[str, dict[bool, Sums]] = {name: {} for name in names}
    for is_kept, rows in values.items():
        for name, column in zip(names, zip(*rows, strict=True), strict=True):
            sums[name][is_kept] = Sums(len(column), math.fsum(column), math.fsum(value * value for value in column))
    return sums


def vote_classes(session: Session, run: str, iteration: int) -> Iterator[tuple[bool, list[int]]]:
    """Yield (kept, votes of each answer class) of each question that has an answer. Reads a page at a time."""
    statement = select(PseudoLabels.index, _is_kept(), PseudoLabels.classes)
    answered = [PseudoLabels.run == run, PseudoLabels.iteration == iteration, PseudoLabels.parsed > 0]
    after = -1
    while True:
        page = statement.where(*answered, PseudoLabels.index > after).order_by(PseudoLabels.index).limit(_PAGE)
        rows = session.execute(page).all()
        for _, is_kept, classes in rows:
            yield bool(is_kept), [votes for _, votes in classes or ()]
        if len(rows) < _PAGE:
            return
        after = rows[-1][0]


def disagreeing(
    session: Session, run: str, iteration: int, oracle: str
) -> list[tuple[bool, list[tuple[str, int]], int, str | None]]:
    """(kept, answer classes, rollouts, truth) of each question with rollouts that disagree with its pseudo-label and
    with a true answer of the oracle. The truth is None if the pseudo-label is right."""
    fields = (PseudoLabels.classes, PseudoLabels.m, OracleLabels.verdict, OracleLabels.truth)
    joined = select(_is_kept(), *fields).join_from(
        PseudoLabels, OracleLabels, OracleLabels.question_id == PseudoLabels.question_id
    )
    conditions = [PseudoLabels.run == run, PseudoLabels.iteration == iteration, PseudoLabels.votes > 0]
    conditions += [PseudoLabels.votes < PseudoLabels.m, OracleLabels.oracle == oracle, OracleLabels.truth.is_not(None)]
    rows: Iterable[Any] = session.execute(joined.where(*conditions, OracleLabels.verdict.in_(("right", "wrong"))))
    return [
        (bool(is_kept), [(answer, votes) for answer, votes in classes], m, None if verdict == "right" else truth)
        for is_kept, classes, m, verdict, truth in rows
    ]


def question_texts(session: Session, run: str, iteration: int) -> list[tuple[bool, str]]:
    """(kept, text) of each well-formed question that has its verdict."""
    of_question = select(_is_kept(), Questions.text).join_from(
        PseudoLabels, Questions, Questions.id == PseudoLabels.question_id
    )
    conditions = [PseudoLabels.run == run, PseudoLabels.iteration == iteration, Questions.text.is_not(None)]
    return [(bool(is_kept), str(text)) for is_kept, text in session.execute(of_question.where(*conditions))]


def oracles_at(session: Session, run: str, iteration: int) -> list[str]:
    """The oracles that have graded questions of an iteration."""
    of_iteration = [OracleLabels.run == run, OracleLabels.iteration == iteration]
    return sorted(session.scalars(select(OracleLabels.oracle).where(*of_iteration).distinct()))


def voted_iterations(session: Session, run: str) -> set[int]:
    """The iterations that have questions that were voted on."""
    voted = [PseudoLabels.run == run, PseudoLabels.p_hat.is_not(None)]
    return set(session.scalars(select(PseudoLabels.iteration).where(*voted).distinct()))


def ill_posed_by_stratum(session: Session, run: str, iteration: int, oracle: str) -> Counter[str]:
    """Stratum (`core.statistics.audits.stratum_of`) -> number of its questions that the oracle calls ill-posed. If the
    oracle has a sample, only questions of the sample count."""
    key, question = (PseudoLabels.p_hat, PseudoLabels.verdict), PseudoLabels.question_id
    same_question = [
        getattr(OracleLabels, name) == getattr(PseudoLabels, name) for name in ("run", "iteration", "index")
    ]
    counted = select(*key, func.count()).join_from(PseudoLabels, OracleLabels, and_(*same_question))
    ill_posed = [OracleLabels.oracle == oracle, OracleLabels.verdict == "ill_posed", PseudoLabels.p_hat.is_not(None)]
    statement = counted.where(PseudoLabels.run == run, PseudoLabels.iteration == iteration, *ill_posed)
    sample = [AuditSamples.run == run, AuditSamples.iteration == iteration, AuditSamples.oracle == oracle]
    if session.scalar(select(exists().where(*sample))):
        statement = statement.where(exists().where(*sample, AuditSamples.question_id == question))
    counts = Counter[str]()
    rows: Iterable[Any] = session.execute(statement.group_by(*key))
    for p_hat, verdict, count in rows:
        counts[stratum_of(p_hat, verdict)] += count
    return counts


def cluster_sizes(session: Session, run: str, iteration: int) -> tuple[int, int] | None:
    """(questions in the largest cluster, questions in all clusters); None if there are no clusters."""
    of_iteration = [QuestionClusters.run == run, QuestionClusters.iteration == iteration]
    largest, n = session.execute(select(func.max(QuestionClusters.size), func.count()).where(*of_iteration)).one()
    return (largest, n) if n else None


def _is_kept() -> ColumnElement[int]:
    return case((PseudoLabels.verdict == "kept", 1), else_=0)
