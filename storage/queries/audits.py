"""Audits: the samples that were drawn, people's annotations, and counts by stratum.

Label accuracy is over pseudo-labels, so it leaves out a question that has none. If an oracle has a sample, only the
sample counts, because the other questions that it graded were not drawn at random. An oracle without a sample was asked
about everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, cast

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, select
from sqlalchemy.orm import Session, aliased

from core.statistics.audits import Stratum, in_order, stratum_of
from core.statistics.calibration import Cell
from core.statistics.kappa import VerdictPair
from core.types import OracleVerdict, Verdict, question_key
from storage.errors import NotThere, StoreError
from storage.models import Annotations, AuditSamples, OracleLabels, PseudoLabels, Questions, Runs
from storage.queries.browse import get_question
from storage.queries.tables import columns, find_rows, insert_dataclasses, insert_into
from storage.rows import AnnotationRow, QuestionEntry, SampleRow, Slice

HUMAN = "human"
_LABELLED = PseudoLabels.answer.is_not(None)
# Joined by position and not by id: one database index has all columns that the counts of an iteration read.
_SAME_QUESTION = and_(
    *(getattr(OracleLabels, name) == getattr(PseudoLabels, name) for name in ("run", "iteration", "index"))
)


class AlreadyAnnotated(StoreError):
    """The annotator has annotated this question before."""


def auditable(session: Session, run: str, iteration: int) -> list[tuple[str, float, Verdict]]:
    """(question id, p_hat, verdict) of the questions that were voted on and have a pseudo-label, by index."""
    statement = select(PseudoLabels.question_id, PseudoLabels.p_hat, PseudoLabels.verdict)
    rows: Iterable[Any] = session.execute(
        _voted_on(statement, run, iteration).where(_LABELLED).order_by(PseudoLabels.index)
    )
    return [(question_id, p_hat, verdict) for question_id, p_hat, verdict in rows]


def add_samples(session: Session, rows: Iterable[SampleRow]) -> None:
    """Store drawn questions. A question that is in the sample already keeps its position."""
    insert_dataclasses(session, AuditSamples, rows, SampleRow)


def samples_of(session: Session, run: str, iteration: int, oracle: str) -> list[SampleRow]:
    """An oracle's sample in order of position; empty if none was drawn."""
    return find_rows(
        session,
        AuditSamples,
        SampleRow,
        *_in_sample(run, iteration, oracle),
        order=[AuditSamples.position, AuditSamples.question_id],
    )


def lock_sample(session: Session, question_id: str, oracle: str) -> SampleRow:
    """Lock an oracle's sample until the transaction ends, and return the row of one of its questions.

    The whole sample is locked, because its figures are computed from all of its labels. Raises `NotThere`.
    """
    run, iteration, _ = question_key(question_id)
    first = select(AuditSamples.position).where(*_in_sample(run, iteration, oracle), AuditSamples.position == 0)
    session.execute(first.with_for_update())
    key = [AuditSamples.question_id == question_id, AuditSamples.oracle == oracle]
    row = session.execute(select(*columns(AuditSamples, SampleRow)).where(*key).with_for_update()).one_or_none()
    if row is None:
        raise NotThere(f"question {question_id!r}: it is not in the sample of {oracle}")
    return SampleRow(*row)


def add_annotation(session: Session, row: AnnotationRow) -> None:
    """Store an annotation. Raises `AlreadyAnnotated` when the annotator has annotated this question before."""
    values = {name: getattr(row, name) for name in AnnotationRow.__dataclass_fields__}
    insert = insert_into(session, Annotations).values(values)
    stored = insert.on_conflict_do_nothing(index_elements=["question_id", "annotator"]).returning(Annotations.annotator)
    if session.execute(stored).one_or_none() is None:
        raise AlreadyAnnotated(f"question {row.question_id!r}: {row.annotator!r} has annotated it already")


def annotations_of(session: Session, question_ids: Sequence[str]) -> list[AnnotationRow]:
    """The annotations of these questions, question by question, the earliest first."""
    key = [Annotations.question_id, Annotations.made_at, Annotations.annotator]
    return find_rows(session, Annotations, AnnotationRow, Annotations.question_id.in_(question_ids), order=key)


def next_to_label(session: Session, run: str, iteration: int, annotator: str) -> QuestionEntry | None:
    """The first question of the human sample, by position, that has no verdict of `human` yet, and that this annotator
    has not annotated; None if there is none."""
    own_annotations = select(Annotations.annotator).where(
        Annotations.question_id == AuditSamples.question_id, Annotations.annotator == annotator
    )
    waiting = select(AuditSamples.question_id).where(
        *_in_sample(run, iteration, HUMAN), ~own_annotations.exists(), ~_verdict_of(HUMAN).exists()
    )
    question = session.scalar(waiting.order_by(AuditSamples.position).limit(1))
    return None if question is None else get_question(session, question)


def sample_progress(session: Session, run: str, iteration: int, oracle: str) -> tuple[int, int]:
    """How many questions of a sample were drawn, and how many of these have the oracle's verdict."""
    settled = func.count().filter(_verdict_of(oracle).exists())
    drawn, done = session.execute(
        select(func.count(), settled).select_from(AuditSamples).where(*_in_sample(run, iteration, oracle))
    ).one()
    return drawn, done


def has_label(session: Session, question_id: str, oracle: str) -> bool:
    """Whether the oracle has given its verdict on a question."""
    label = exists().where(OracleLabels.question_id == question_id, OracleLabels.oracle == oracle)
    return bool(session.scalar(select(label)))


def sample_is_over(session: Session, run: str, iteration: int, oracle: str, needed: int) -> bool:
    """Whether each question of a sample has the oracle's verdict, or at least `needed` annotations, which may be skips.
    False if no sample was drawn."""
    annotation_count = select(func.count()).where(Annotations.question_id == AuditSamples.question_id).scalar_subquery()
    drawn = _in_sample(run, iteration, oracle)
    waiting = exists().where(*drawn, ~_verdict_of(oracle).exists(), annotation_count < needed)
    return bool(session.scalar(select(exists().where(*drawn) & ~waiting)))


def drawn_by_stratum(session: Session, run: str, iteration: int, oracle: str) -> dict[str, int]:
    """Stratum -> number of questions of the sample."""
    counted = select(AuditSamples.stratum, func.count()).where(*_in_sample(run, iteration, oracle))
    rows: Iterable[Any] = session.execute(counted.group_by(AuditSamples.stratum))
    return dict(iter(rows))


def annotation_counts(session: Session, run: str, iteration: int) -> dict[str, dict[OracleVerdict, int]]:
    """Annotator -> verdict -> number of questions of the iteration; skipped questions are `unknown`."""
    key = (Annotations.annotator, Annotations.verdict)
    counted = select(*key, func.count()).join(Questions).where(Questions.run == run, Questions.iteration == iteration)
    counts: dict[str, dict[OracleVerdict, int]] = {}
    for annotator, verdict, count in session.execute(counted.group_by(*key).order_by(*key)):
        counts.setdefault(annotator, {})[cast(OracleVerdict, verdict)] = count
    return counts


def named_strata_of(
    session: Session, run: str, iteration: int, oracle: str, *, unanswered: bool = False
) -> dict[str, Stratum]:
    """Stratum -> its counts: pseudo-labels in all, audited ones, and right ones. The strata are sorted by `in_order`.

    A label that the oracle calls ill-posed, or could not decide on, is not right. With `unanswered`, questions without
    a pseudo-label count too, if the oracle was asked about everything; a sample never contains such a question.
    """
    key = (PseudoLabels.p_hat, PseudoLabels.verdict)
    of_oracle = and_(_SAME_QUESTION, OracleLabels.oracle == oracle)
    counted = select(*key, func.count(), func.count(OracleLabels.verdict), func.sum(_is_right()))
    if session.scalar(select(AuditSamples.position).where(*_in_sample(run, iteration, oracle)).limit(1)) is None:
        joined = counted.join_from(PseudoLabels, OracleLabels, of_oracle, isouter=True)
        joined = joined if unanswered else joined.where(_LABELLED)
    else:
        drawn = and_(AuditSamples.question_id == PseudoLabels.question_id, AuditSamples.oracle == oracle)
        sampled = counted.join_from(PseudoLabels, AuditSamples, drawn, isouter=True).where(_LABELLED)
        joined = sampled.join(OracleLabels, and_(of_oracle, AuditSamples.position.is_not(None)), isouter=True)
    sums: dict[str, list[int]] = {}
    for p_hat, verdict, *counts in session.execute(_voted_on(joined, run, iteration).group_by(*key)):
        total = sums.setdefault(stratum_of(p_hat, cast(Verdict, verdict)), [0, 0, 0])
        total[:] = [a + b for a, b in zip(total, counts, strict=True)]
    return {name: Stratum(*sums[name]) for name in in_order(sums)}


def strata_of(
    session: Session, run: str, iteration: int, oracle: str, *, unanswered: bool = False
) -> dict[Slice, dict[str, Stratum]]:
    """Over the kept questions and over all questions: the strata of `named_strata_of` for `stratified_share`.

    There are none over all questions if the oracle's sample has only kept ones, since it was drawn from these then.
    """
    strata = named_strata_of(session, run, iteration, oracle, unanswered=unanswered)
    drawn = drawn_by_stratum(session, run, iteration, oracle)
    kept = {name: stratum for name, stratum in strata.items() if _is_kept(name)}
    from_kept = bool(drawn) and all(map(_is_kept, drawn)) and len(kept) < len(strata)
    return {"kept": kept, "all": {} if from_kept else strata}


def _is_kept(stratum: str) -> bool:
    return stratum.startswith("kept ")


def audited_cells(
    session: Session, run: str, oracle: str, *, iteration: int | None = None, kept_only: bool = False
) -> list[Cell]:
    """An oracle's verdicts in a run, or in one iteration, counted by iteration and p_hat, for
    `core.statistics.calibration` to fit. Verdicts outside the sample count too: at the same p_hat, audited questions
    are assumed to be like the others."""
    key = (PseudoLabels.iteration, PseudoLabels.p_hat)
    counted = select(*key, func.count(), func.sum(_is_right())).select_from(PseudoLabels)
    counted = counted.join(OracleLabels, _SAME_QUESTION)
    conditions = [PseudoLabels.run == run, _LABELLED, OracleLabels.oracle == oracle]
    if iteration is not None:
        conditions.append(PseudoLabels.iteration == iteration)
    if kept_only:
        conditions.append(PseudoLabels.verdict == "kept")
    rows: Iterable[Any] = session.execute(counted.where(*conditions).group_by(*key).order_by(*key))
    return [Cell(*row) for row in rows]


def p_hats_of(
    session: Session, run: str, *, iteration: int | None = None, kept_only: bool = False
) -> dict[int, dict[float, int]]:
    """Iteration -> p_hat -> number of pseudo-labels, of one iteration if it is given; with `kept_only`, those of kept
    questions."""
    key = (PseudoLabels.iteration, PseudoLabels.p_hat)
    voted = [PseudoLabels.run == run, _LABELLED]
    if iteration is not None:
        voted.append(PseudoLabels.iteration == iteration)
    if kept_only:
        voted.append(PseudoLabels.verdict == "kept")
    counts: dict[int, dict[float, int]] = {}
    rows: Iterable[Any] = session.execute(select(*key, func.count()).where(*voted).group_by(*key).order_by(*key))
    for t, p_hat, count in rows:
        counts.setdefault(t, {})[p_hat] = count
    return counts


def version(session: Session, run: str) -> tuple[Hashable, ...]:
    """What differs if anything does that the figures of a run's audits depend on: labels, verdicts, samples and
    annotations are only ever added, so their numbers tell."""
    counted = [
        select(model.iteration, model.oracle, func.count())
        .where(model.run == run)
        .group_by(model.iteration, model.oracle)
        for model in (OracleLabels, AuditSamples)
    ]
    labels = select(PseudoLabels.iteration, func.count()).where(PseudoLabels.run == run)
    annotated = select(func.count()).select_from(Annotations).join(Questions).where(Questions.run == run)
    statements = [*counted, labels.group_by(PseudoLabels.iteration), annotated]
    created = session.scalar(select(Runs.created_at).where(Runs.name == run))
    return (run, created, *(frozenset(map(tuple, session.execute(statement))) for statement in statements))


def oracles_of(session: Session, run: str) -> dict[str, list[int]]:
    """Oracle -> the iterations of the run in which it has graded a question, in order."""
    key = (OracleLabels.oracle, OracleLabels.iteration)
    statement = select(*key).where(OracleLabels.run == run).distinct()
    iterations: dict[str, list[int]] = {}
    for oracle, iteration in session.execute(statement.order_by(*key)):
        iterations.setdefault(oracle, []).append(iteration)
    return iterations


def agreement(session: Session, run: str, oracle_a: str, oracle_b: str) -> Counter[VerdictPair]:
    """(verdict of oracle_a, verdict of oracle_b) -> number of pseudo-labels, over those that both have graded. This is
    what `core.statistics.audits.kappa` takes."""
    other = aliased(OracleLabels)
    key = (OracleLabels.verdict, other.verdict)
    both = select(*key, func.count()).join_from(PseudoLabels, OracleLabels, _SAME_QUESTION)
    both = both.join(other, other.question_id == PseudoLabels.question_id)
    named = [PseudoLabels.run == run, OracleLabels.oracle == oracle_a, other.oracle == oracle_b]
    rows: Iterable[Any] = session.execute(both.where(*named).group_by(*key))
    return Counter({(a, b): count for a, b, count in rows})


def annotator_agreement(session: Session, run: str) -> dict[tuple[str, str], Counter[VerdictPair]]:
    """Like `agreement`, for every two annotators who have annotated a question in common, in order of their names."""
    other = aliased(Annotations)
    key = (Annotations.annotator, other.annotator, Annotations.verdict, other.verdict)
    both = select(*key, func.count()).join_from(Annotations, Questions, Questions.id == Annotations.question_id)
    both = both.join(other, and_(other.question_id == Questions.id, other.annotator > Annotations.annotator))
    rows: Iterable[Any] = session.execute(both.where(Questions.run == run).group_by(*key).order_by(*key))
    pairs: dict[tuple[str, str], Counter[VerdictPair]] = {}
    for first, second, a, b, count in rows:
        pairs.setdefault((first, second), Counter())[a, b] = count
    return pairs


def _in_sample(run: str, iteration: int, oracle: str) -> list[ColumnElement[bool]]:
    return [AuditSamples.run == run, AuditSamples.iteration == iteration, AuditSamples.oracle == oracle]


def _verdict_of(oracle: str) -> Select[str]:
    """A subquery: the oracle's verdict on the question of a row of `audit_samples`."""
    same = OracleLabels.question_id == AuditSamples.question_id
    return select(OracleLabels.verdict).where(same, OracleLabels.oracle == oracle)


def _is_right() -> ColumnElement[int]:
    return case((OracleLabels.verdict == "right", 1), else_=0)


def _voted_on(statement: Select[*tuple[Any, ...]], run: str, iteration: int) -> Select[*tuple[Any, ...]]:
    """The statement, limited to the questions of an iteration that were voted on."""
    voted = [PseudoLabels.run == run, PseudoLabels.iteration == iteration, PseudoLabels.p_hat.is_not(None)]
    return statement.where(*voted)
