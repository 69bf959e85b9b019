"""Clusters of similar questions, and the checkpoints that were trained on a question."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from storage.models import QuestionClusters, Questions, TrainedOn
from storage.queries.tables import find_row, find_rows, insert_dataclasses
from storage.rows import ClusterRow, TrainedOnRow


def add_clusters(session: Session, rows: Iterable[ClusterRow]) -> None:
    insert_dataclasses(session, QuestionClusters, rows, ClusterRow)


def largest_clusters(session: Session, run: str, iteration: int, limit: int) -> list[tuple[int, int, str]]:
    """(cluster, number of questions, text of its first question) of an iteration's clusters, the largest first."""
    of_iteration = [QuestionClusters.run == run, QuestionClusters.iteration == iteration]
    first = func.min(QuestionClusters.question_id).label("first")
    grouped = select(QuestionClusters.cluster, QuestionClusters.size, first).where(
        *of_iteration, QuestionClusters.cluster < limit
    )
    clusters = grouped.group_by(QuestionClusters.cluster, QuestionClusters.size).subquery()
    statement = select(clusters.c.cluster, clusters.c.size, Questions.text).join(
        Questions, Questions.id == clusters.c.first
    )
    rows = session.execute(statement.order_by(clusters.c.cluster))
    return [(cluster, size, text or "") for cluster, size, text in rows]


def cluster_of(session: Session, question_id: str) -> ClusterRow | None:
    """The cluster of a question. None if it is malformed, or if its iteration has too many questions to compare."""
    return find_row(session, QuestionClusters, ClusterRow, QuestionClusters.question_id == question_id)


def add_trained_on(session: Session, rows: Iterable[TrainedOnRow]) -> None:
    insert_dataclasses(session, TrainedOn, rows, TrainedOnRow)


def trained_on_of(session: Session, question_id: str) -> list[TrainedOnRow]:
    """The checkpoints that were trained on a question, and at which steps."""
    return find_rows(
        session, TrainedOn, TrainedOnRow, TrainedOn.question_id == question_id, order=[TrainedOn.checkpoint]
    )


def trained_on_by(session: Session, checkpoint: str) -> list[TrainedOnRow]:
    """The questions that a checkpoint was trained on, and at which steps, by question."""
    return find_rows(
        session, TrainedOn, TrainedOnRow, TrainedOn.checkpoint == checkpoint, order=[TrainedOn.question_id]
    )


def count_learned_from(session: Session, checkpoint: str) -> int:
    """The number of questions that a checkpoint was trained on."""
    counted = select(func.count()).select_from(TrainedOn).where(TrainedOn.checkpoint == checkpoint)
    return session.scalar(counted) or 0
