"""What questions are alike, and where they were trained on."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from storage.models import QuestionClusters, Questions, TrainedOn
from storage.queries.tables import columns, insert_carriers
from storage.rows import ClusterRow, TrainedOnRow


def add_clusters(session: Session, rows: Iterable[ClusterRow]) -> None:
    insert_carriers(session, QuestionClusters, rows, ClusterRow)


def largest_clusters(session: Session, run: str, iteration: int, limit: int) -> list[tuple[int, int, str]]:
    """(cluster, questions, the text of its first one) of an iteration's clusters, the largest first."""
    of_iteration = [QuestionClusters.run == run, QuestionClusters.iteration == iteration]
    first = func.min(QuestionClusters.question_id).label("first")
    grouped = select(QuestionClusters.cluster, QuestionClusters.size, first).where(
        *of_iteration, QuestionClusters.cluster < limit
    )
    statement = grouped.group_by(QuestionClusters.cluster, QuestionClusters.size).subquery()
    named = select(statement.c.cluster, statement.c.size, Questions.text).join(
        Questions, Questions.id == statement.c.first
    )
    return [(cluster, size, text or "") for cluster, size, text in session.execute(named.order_by(statement.c.cluster))]


def cluster_of(session: Session, question_id: str) -> ClusterRow | None:
    """None for a malformed question, or where an iteration has too many to compare."""
    row = session.execute(
        select(*columns(QuestionClusters, ClusterRow)).where(QuestionClusters.question_id == question_id)
    ).one_or_none()
    return None if row is None else ClusterRow(*row)


def add_trained_on(session: Session, rows: Iterable[TrainedOnRow]) -> None:
    insert_carriers(session, TrainedOn, rows, TrainedOnRow)


def trained_on_of(session: Session, question_id: str) -> list[TrainedOnRow]:
    """The checkpoints that learned from a question."""
    statement = select(*columns(TrainedOn, TrainedOnRow)).where(TrainedOn.question_id == question_id)
    return [TrainedOnRow(*row) for row in session.execute(statement.order_by(TrainedOn.checkpoint))]


def count_learned_from(session: Session, checkpoint: str) -> int:
    """How many questions a checkpoint learned from."""
    counted = select(func.count()).select_from(TrainedOn).where(TrainedOn.checkpoint == checkpoint)
    return session.scalar(counted) or 0
