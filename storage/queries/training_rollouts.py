"""The rollouts of trainings, with what they were rewarded for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from typing import Any, Literal, get_args

from sqlalchemy import ColumnElement, and_, func, literal, or_, select, tuple_
from sqlalchemy.orm import Session

from core.grading.grader import verdict_here
from core.types import Role, TrainingRollout
from storage.errors import NotThere
from storage.models import OracleLabels, PseudoLabels, Questions, TrainingRollouts
from storage.queries.tables import columns, find_row, find_rows, insert_new
from storage.rows import TrainingStep

Sort = Literal["step", "reward", "-reward", "advantage", "-advantage", "tokens", "-tokens", "entropy", "-entropy"]
SORTS: tuple[Sort, ...] = get_args(Sort)
_COLUMNS = columns(TrainingRollouts, TrainingRollout)
_KEY = _COLUMNS[:3]  # step, prompt, rollout
_ROWS_AT_ONCE = 500  # that are read to be compared
_MISSING = 1e300  # stands for a missing value, so that it is last in either order


@dataclass(frozen=True, slots=True)
class Training:
    """Which training: that of a role in an iteration of a run."""

    run: str
    iteration: int
    role: Role


def add(session: Session, training: Training, rollouts: Iterable[TrainingRollout]) -> None:
    insert_new(session, TrainingRollouts, ({**asdict(training), **asdict(rollout)} for rollout in rollouts))


def list_rollouts(
    session: Session,
    training: Training,
    *,
    step: int | None = None,
    prompt: int | None = None,
    question_id: str | None = None,
    rewarded_wrong: bool = False,
    sort: Sort = "step",
    after: Sequence[float] = (),
    limit: int = 50,
) -> list[TrainingRollout]:
    """A page of a training's rollouts; only those of a step, a position in the step, or a question if it is given.

    `after` is the `sort_key_of` of the last rollout of the previous page, in the same order. Rollouts that lack the
    value that they are sorted by are last. With `rewarded_wrong`, only those that got a reward above 0 although an
    oracle, or the answer that came with the prompt, shows that their answer is wrong.
    """
    conditions = [
        column == value
        for column, value in (
            (TrainingRollouts.step, step),
            (TrainingRollouts.prompt, prompt),
            (TrainingRollouts.question_id, question_id),
        )
        if value is not None
    ]
    # What the rows are sorted by, all in ascending order.
    column = getattr(TrainingRollouts, _field(sort))
    value = func.coalesce(-column if sort.startswith("-") else column, _MISSING)
    order: list[ColumnElement[Any]] = [*_KEY] if sort == "step" else [value, *_KEY]
    if after:
        conditions.append(tuple_(*order) > tuple_(*(literal(float(at)) for at in after)))
    if rewarded_wrong:
        return list(islice(_rewarded_wrong(session, [*_of(training), *conditions], order), limit))
    conditions += _of(training)
    return find_rows(session, TrainingRollouts, TrainingRollout, *conditions, order=order, limit=limit)


def are_graded(session: Session, training: Training) -> bool:
    """Whether an oracle has graded the label of any question of the training, or a true answer came with one."""
    question, oracle = TrainingRollouts.question_id, OracleLabels.question_id
    truths = select(Questions.id).where(Questions.id == question, Questions.answer.is_not(None)).exists()
    graded = select(oracle).where(oracle == question, OracleLabels.verdict != "unknown").exists()
    return session.scalar(select(question).where(*_of(training), or_(truths, graded)).limit(1)) is not None


def sort_key_of(rollout: TrainingRollout, sort: Sort) -> tuple[float, ...]:
    """The position of a rollout in an order. `list_rollouts` takes it as `after`."""
    key = (rollout.step, rollout.prompt, rollout.rollout)
    if sort == "step":
        return key
    value: float | None = getattr(rollout, _field(sort))
    if value is None:
        return (_MISSING, *key)
    return (-value if sort.startswith("-") else value, *key)


def find(session: Session, training: Training, step: int, prompt: int, rollout: int) -> TrainingRollout:
    """One rollout. Raises `NotThere`."""
    at = [column == value for column, value in zip(_KEY, (step, prompt, rollout), strict=True)]
    found = find_row(session, TrainingRollouts, TrainingRollout, *_of(training), *at)
    if found is None:
        raise NotThere(
            f"rollout {rollout} of prompt {prompt} of step {step}: this training of run {training.run!r} has stored "
            "no such rollout"
        )
    return found


def steps_of(session: Session, training: Training) -> list[TrainingStep]:
    """The steps of a training of which rollouts are stored, with the number of their prompts and their rewards."""
    row = TrainingRollouts
    judged = row.parts["undecided"].as_float().is_(None)
    figures = (
        func.count(row.prompt.distinct()),
        func.count(),
        func.count(row.advantage),
        func.avg(row.reward).filter(judged),
        func.min(row.reward).filter(judged),
        func.max(row.reward).filter(judged),
    )
    statement = select(row.step, *figures).where(*_of(training)).group_by(row.step).order_by(row.step)
    return [TrainingStep(*values) for values in session.execute(statement)]


def _rewarded_wrong(
    session: Session, conditions: Sequence[ColumnElement[bool]], order: Sequence[ColumnElement[Any]]
) -> Iterator[TrainingRollout]:
    """The rewarded rollouts whose answers are known to be wrong. The database cannot compare answers as numbers, so
    that is done here, row by row, and only as far as the page reaches."""
    statement = (
        select(*_COLUMNS, Questions.answer, _is_contradicted())
        .join(Questions, Questions.id == TrainingRollouts.question_id)
        .where(TrainingRollouts.reward > 0, *conditions)
        .order_by(*order)
    )
    with session.execute(statement.execution_options(yield_per=_ROWS_AT_ONCE)) as rows:
        for *values, truth, contradicted in rows:
            rollout = TrainingRollout(*values)
            answer = rollout.answer
            differs = answer is not None and truth is not None and verdict_here(answer, truth) == "unequal"
            if contradicted or differs:
                yield rollout


def _is_contradicted() -> ColumnElement[bool]:
    """An answer is known to be wrong if it agrees with a pseudo-label that an oracle calls wrong, or differs from one
    that an oracle calls right. Other labels that a method makes in training are not graded by themselves."""
    rollout, graded = TrainingRollouts, OracleLabels
    contradicted = or_(
        and_(graded.verdict == "wrong", rollout.agrees.is_(True)),
        and_(graded.verdict == "right", rollout.agrees.is_(False)),
    )
    grades = (
        select(graded.question_id)
        .join(PseudoLabels, PseudoLabels.question_id == graded.question_id)
        .where(graded.question_id == rollout.question_id, PseudoLabels.answer == rollout.label, contradicted)
        .correlate(rollout)
    )
    return grades.exists()


def _of(training: Training) -> list[ColumnElement[bool]]:
    return [getattr(TrainingRollouts, field.name) == getattr(training, field.name) for field in fields(training)]


def _field(sort: Sort) -> str:
    name = sort.removeprefix("-")
    return "mean_entropy" if name == "entropy" else name
