"""Checkpoints and the trainings that made them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from storage.models.base import NARROW, Base, question_key, run_key


class Checkpoints(Base):
    """Published checkpoints only: the row is written in the transaction that finishes the stage."""

    __tablename__ = "checkpoints"

    id: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(ForeignKey("runs.name", ondelete="CASCADE"), index=True)
    role: Mapped[str]
    iteration: Mapped[int]
    step: Mapped[int]
    path: Mapped[str]
    sha256: Mapped[str]
    manifest: Mapped[dict[str, str]]  # file name -> sha256
    parent: Mapped[str | None] = mapped_column(ForeignKey("checkpoints.id"), index=True)
    files_removed: Mapped[bool]


class TrainedOn(Base):
    """A checkpoint that was trained on a question, and at which steps."""

    __tablename__ = "trained_on"
    __table_args__ = NARROW

    question_id: Mapped[str] = question_key()
    checkpoint: Mapped[str] = mapped_column(
        ForeignKey("checkpoints.id", ondelete="CASCADE"), primary_key=True, index=True
    )
    steps: Mapped[list[int]]


class TrainMetrics(Base):
    __tablename__ = "train_metrics"
    __table_args__ = NARROW

    run: Mapped[str] = run_key()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]  # None: it was not a number


class TrainingRollouts(Base):
    """Rollouts of a training, without their texts, which are in Parquet files: `core.types.TrainingRollout`."""

    __tablename__ = "training_rollouts"

    run: Mapped[str] = run_key()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    prompt: Mapped[int] = mapped_column(primary_key=True)
    rollout: Mapped[int] = mapped_column(primary_key=True)
    question_id: Mapped[str | None]  # no foreign key, because labelled data is not among the questions
    question: Mapped[str | None]
    answer: Mapped[str | None]
    label: Mapped[str | None]
    agrees: Mapped[bool | None]
    reward: Mapped[float]
    parts: Mapped[dict[str, Any]]
    advantage: Mapped[float | None]
    tokens: Mapped[int]
    finish_reason: Mapped[str]
    mean_entropy: Mapped[float | None]
