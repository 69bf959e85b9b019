"""Questions with their votes, pseudo-labels and verdicts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from storage.models.base import NARROW, Base, question_key, run_key


class Questions(Base):
    __tablename__ = "questions"
    __table_args__ = (Index(None, "run", "iteration", "index", unique=True),)

    id: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(ForeignKey("runs.name", ondelete="CASCADE"))
    iteration: Mapped[int]
    index: Mapped[int]
    text: Mapped[str | None]
    raw: Mapped[str]
    # NULL: the question came from a file
    checkpoint: Mapped[str | None] = mapped_column(ForeignKey("checkpoints.id"), index=True)
    seed: Mapped[int] = mapped_column(BigInteger)
    answer: Mapped[str | None]  # the true answer, if the file has one


class Rollouts(Base):
    """Votes, without their texts, which are in Parquet files (`storage.files.texts`)."""

    __tablename__ = "rollouts"
    __table_args__ = NARROW

    question_id: Mapped[str] = question_key()
    sample_index: Mapped[int] = mapped_column(primary_key=True)
    answer: Mapped[str | None]
    tokens: Mapped[int]
    finish_reason: Mapped[str]
    mean_entropy: Mapped[float | None]
    entropy_error: Mapped[float | None]
    checkpoint: Mapped[str] = mapped_column(ForeignKey("checkpoints.id"), index=True)
    seed: Mapped[int] = mapped_column(BigInteger)


class PseudoLabels(Base):
    """One row per question: its verdict, and the vote, unless the question was never asked (malformed, duplicate).

    Run, iteration and index are copied from the question, so that an iteration's rows can be read in order of p_hat.
    """

    __tablename__ = "pseudo_labels"
    __table_args__ = (
        Index(None, "run", "iteration", "p_hat", "index", "verdict"),
        Index(None, "run", "iteration", "verdict", "index"),
    )

    question_id: Mapped[str] = question_key()
    run: Mapped[str]
    iteration: Mapped[int]
    index: Mapped[int]
    verdict: Mapped[str]
    gate: Mapped[str | None]  # the gate that refused it
    answer: Mapped[str | None]
    votes: Mapped[int | None]
    m: Mapped[int | None]
    parsed: Mapped[int | None]
    unknown: Mapped[int | None]
    p_hat: Mapped[float | None]
    denominator: Mapped[str | None]
    classes: Mapped[list[list[Any]] | None] = mapped_column(JSON(none_as_null=True))  # [[answer, votes], …]


class GateEvidence(Base):
    """What models answered about questions for gates (`core.challenger.gates`)."""

    __tablename__ = "gate_evidence"
    __table_args__ = NARROW

    question_id: Mapped[str] = question_key()
    gate: Mapped[str] = mapped_column(primary_key=True)
    voter: Mapped[str] = mapped_column(primary_key=True)  # a checkpoint of this run or of another, or an oracle
    question: Mapped[str | None]  # NULL: the question itself was asked
    answers: Mapped[list[str | None]] = mapped_column(JSON)


class FilterStatistics(Base):
    __tablename__ = "filter_stats"

    run: Mapped[str] = run_key()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    candidates: Mapped[int]
    kept: Mapped[int]
    too_easy: Mapped[int]
    too_hard: Mapped[int]
    no_majority: Mapped[int]
    refused: Mapped[int] = mapped_column(server_default="0")
    malformed: Mapped[int]
    duplicate: Mapped[int]
    mean_p_hat: Mapped[float | None]
    unparsed_share: Mapped[float | None]
    unknown: Mapped[int]


class QuestionClusters(Base):
    """The iteration's cluster of similar questions that a question is in (`core.questions.similarity.clusters`)."""

    __tablename__ = "question_clusters"
    __table_args__ = (Index(None, "run", "iteration", "cluster"), NARROW)

    question_id: Mapped[str] = question_key()
    run: Mapped[str]
    iteration: Mapped[int]
    cluster: Mapped[int]  # 0 is the largest
    size: Mapped[int]
