"""Questions, their votes, and what was made of them.

What a stage writes it may write again: a key that is there already keeps its row. So a stage that goes on after a crash
reads back what is stored, and does not trust what it holds in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, cast

from sqlalchemy import Row, Select, func, select, text
from sqlalchemy.orm import Session

from core.types import LabelledQuestion, OracleLabel, PseudoLabel, Question, Rollout, Verdict, question_key
from storage.models import OracleLabels, PseudoLabels, Questions, Rollouts
from storage.queries.ledger import find_stage
from storage.queries.tables import columns, insert_carriers, insert_new, is_postgresql, table_of
from storage.rows import RolloutRow

_LABEL_FIELDS = ("answer", "votes", "m", "parsed", "unknown", "p_hat", "denominator", "classes")


def add_questions(session: Session, questions: Iterable[Question]) -> None:
    insert_carriers(session, Questions, questions, Question)


def questions_of(
    session: Session, run: str, iteration: int, *, after: int = -1, limit: int | None = None
) -> list[Question]:
    """The questions of an iteration by index, malformed ones too; `after` and `limit` make pages of them."""
    page = _page(select(*columns(Questions, Question)), run, iteration, after, limit)
    return [Question(*row) for row in session.execute(page)]


def count_questions(session: Session, run: str, iteration: int) -> int:
    of_iteration = [Questions.run == run, Questions.iteration == iteration]
    return session.scalar(select(func.count()).select_from(Questions).where(*of_iteration)) or 0


def add_rollouts(session: Session, rollouts: Iterable[Rollout | RolloutRow]) -> None:
    """Store votes; their texts go to `storage.texts`."""
    insert_carriers(session, Rollouts, rollouts, RolloutRow)


def rollouts_of(
    session: Session, run: str, iteration: int, *, after: int = -1, limit: int | None = None
) -> list[RolloutRow]:
    """The votes of an iteration, question by question in order of index, each in order of `sample_index`; those of at
    most `limit` questions, which come after index `after`."""
    asked = _page(select(Questions.id, Questions.index), run, iteration, after, limit).subquery()
    votes = select(*columns(Rollouts, RolloutRow)).join(asked, asked.c.id == Rollouts.question_id)
    return [RolloutRow(*row) for row in session.execute(votes.order_by(asked.c.index, Rollouts.sample_index))]


def rollouts_of_question(session: Session, question_id: str) -> list[RolloutRow]:
    votes = select(*columns(Rollouts, RolloutRow)).where(Rollouts.question_id == question_id)
    return [RolloutRow(*row) for row in session.execute(votes.order_by(Rollouts.sample_index))]


def count_rollouts(session: Session, run: str, iteration: int) -> dict[str, int]:
    """Question id -> votes stored; a question without votes is not in it."""
    asked = _page(select(Questions.id), run, iteration, -1, None).subquery()
    counted = select(Rollouts.question_id, func.count()).join(asked, asked.c.id == Rollouts.question_id)
    return dict(session.execute(counted.group_by(Rollouts.question_id)).all())


def add_labels(session: Session, labelled: Iterable[LabelledQuestion]) -> None:
    """Store verdicts and pseudo-labels; the texts are those of the questions, and stay there."""
    insert_new(session, PseudoLabels, map(_label_row, labelled))


def _label_row(labelled: LabelledQuestion) -> dict[str, Any]:
    label = labelled.label
    fields = {name: None if label is None else getattr(label, name) for name in _LABEL_FIELDS}
    return {"question_id": labelled.question_id, **_place(labelled.question_id), "verdict": labelled.verdict, **fields}


def _place(question_id: str) -> dict[str, Any]:
    return dict(zip(("run", "iteration", "index"), question_key(question_id), strict=True))


def labels_of(
    session: Session,
    run: str,
    iteration: int,
    verdict: Verdict | None = None,
    *,
    after: int = -1,
    limit: int | None = None,
) -> list[LabelledQuestion]:
    """The labelled questions of an iteration by index, with their texts; those of one verdict when it is given."""
    fields = [getattr(PseudoLabels, name) for name in _LABEL_FIELDS]
    labelled = select(Questions.id, Questions.text, PseudoLabels.verdict, *fields).join(PseudoLabels)
    if verdict is not None:
        labelled = labelled.where(PseudoLabels.verdict == verdict)
    return [_labelled(row) for row in session.execute(_page(labelled, run, iteration, after, limit))]


def _labelled(row: Row[*tuple[Any, ...]]) -> LabelledQuestion:
    question_id, text, verdict, *label = row
    return LabelledQuestion(question_id, text, label_of(label), verdict)


def label_of(fields: Sequence[Any]) -> PseudoLabel | None:
    """A label of its columns, in the order of the carrier's; None where the question was never asked."""
    answer, votes, m, parsed, unknown, p_hat, denominator, classes = fields
    if classes is None:
        return None
    ranked = tuple((representative, count) for representative, count in classes)
    return PseudoLabel(answer, votes, m, parsed, unknown, p_hat, denominator, ranked)


def makers(session: Session, run: str, iteration: int) -> tuple[list[str], list[str]]:
    """The checkpoints that wrote an iteration's questions, and those that voted on them."""
    of_iteration = [Questions.run == run, Questions.iteration == iteration]
    wrote = select(Questions.checkpoint).where(*of_iteration, Questions.checkpoint.is_not(None)).distinct()
    voted = select(Rollouts.checkpoint).join(Questions, Questions.id == Rollouts.question_id).where(*of_iteration)
    return sorted(filter(None, session.scalars(wrote))), sorted(session.scalars(voted.distinct()))


def count_verdicts(session: Session, run: str, iteration: int) -> dict[Verdict, int]:
    """Verdict -> questions; a verdict that no question has is not in it."""
    counted = select(PseudoLabels.verdict, func.count())
    of_iteration = [PseudoLabels.run == run, PseudoLabels.iteration == iteration]
    rows = session.execute(counted.where(*of_iteration).group_by(PseudoLabels.verdict))
    return {cast(Verdict, verdict): count for verdict, count in rows}


def all_labelled(session: Session, run: str, iteration: int) -> bool:
    """Whether `label_questions` is done; where there is none, since nobody votes on the given prompts, whether
    `read_prompts` is and has given every question its verdict."""
    voted = find_stage(session, run=run, iteration=iteration, stage="label_questions")
    if voted is not None:
        return voted.status == "done"
    read = find_stage(session, run=run, iteration=iteration, stage="read_prompts")
    if read is None or read.status != "done":
        return False
    return sum(count_verdicts(session, run, iteration).values()) == count_questions(session, run, iteration)


def gather_statistics(session: Session) -> None:
    """Have PostgreSQL's planner know of the questions, votes and labels that were added; nothing on SQLite.

    By itself PostgreSQL looks once a tenth of a table has changed. Until then it takes a run that is new for a single
    row, and compares each of 8,000 labels with each of as many verdicts: 26 s instead of 0.2.
    """
    if is_postgresql(session):
        tables = ", ".join(table_of(model).name for model in (Questions, Rollouts, PseudoLabels))
        session.execute(text(f"ANALYZE (SKIP_LOCKED) {tables}"))  # it waits for nobody: a later one will do


def add_oracle_labels(session: Session, labels: Iterable[OracleLabel]) -> None:
    insert_new(session, OracleLabels, ({**asdict(label), **_place(label.question_id)} for label in labels))


def oracle_labels_of(session: Session, run: str, iteration: int, oracle: str) -> list[OracleLabel]:
    """What an oracle said of the pseudo-labels of an iteration, by index."""
    labels = select(*columns(OracleLabels, OracleLabel)).join(Questions).where(OracleLabels.oracle == oracle)
    return [OracleLabel(*row) for row in session.execute(_page(labels, run, iteration, -1, None))]


def _page(
    statement: Select[*tuple[Any, ...]], run: str, iteration: int, after: int, limit: int | None
) -> Select[*tuple[Any, ...]]:
    """By index, from the key rather than by counting: the last page costs what the first does."""
    wanted = [Questions.run == run, Questions.iteration == iteration, Questions.index > after]
    return statement.where(*wanted).order_by(Questions.index).limit(limit)
