"""Models on benchmarks: questions, answers and verdicts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from storage.models.base import NARROW, Base


class BenchmarkItems(Base):
    """The questions of benchmarks as they were asked. `sha256` is that of all questions of a benchmark, or that of the
    name of an iteration's question set, which may grow."""

    __tablename__ = "benchmark_items"
    __table_args__ = NARROW

    sha256: Mapped[str] = mapped_column(primary_key=True)
    item_id: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int]  # in the file
    problem: Mapped[str]
    answer: Mapped[str]
    level: Mapped[str | None]
    subject: Mapped[str | None]


class Evaluations(Base):
    """What a model was asked: which questions, how, and by whom. The results are in `evaluated_items`."""

    __tablename__ = "evaluations"

    id: Mapped[str] = mapped_column(primary_key=True)  # `core.types.evaluation_id`
    # The run that made it, in a stage or in `coevo show matrix`; None: `coevo evaluate` did
    run: Mapped[str | None] = mapped_column(ForeignKey("runs.name", ondelete="CASCADE"), index=True)
    checkpoint_id: Mapped[str | None] = mapped_column(ForeignKey("checkpoints.id", ondelete="CASCADE"), index=True)
    model: Mapped[str]  # a checkpoint's id, or the folder or URL of a model that is no run's
    benchmark: Mapped[str]
    manifest: Mapped[dict[str, Any]]
    seconds: Mapped[float]  # spent on it so far
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]


class EvaluatedItems(Base):
    __tablename__ = "evaluated_items"
    __table_args__ = NARROW

    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"), primary_key=True)
    item_id: Mapped[str] = mapped_column(primary_key=True)
    level: Mapped[str | None]
    samples: Mapped[int]
    correct: Mapped[int]
    greedy_correct: Mapped[bool | None]  # NULL: the model was not asked greedily
    majority_correct: Mapped[bool]


class EvaluatedAnswers(Base):
    __tablename__ = "evaluated_answers"
    __table_args__ = NARROW

    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"), primary_key=True)
    item_id: Mapped[str] = mapped_column(primary_key=True)
    sample_index: Mapped[int] = mapped_column(primary_key=True)  # -1: the greedy answer
    answer: Mapped[str | None]
    answer_class: Mapped[int | None]  # among the question's sampled answers; 0 is the majority
    verdict: Mapped[str | None]  # None: no answer
    tokens: Mapped[int]
    finish_reason: Mapped[str]


class JudgedAnswers(Base):
    """What judges say about the rows of `evaluated_answers`. Equal answers to a question have equal verdicts."""

    __tablename__ = "judged_answers"
    __table_args__ = NARROW

    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"), primary_key=True)
    item_id: Mapped[str] = mapped_column(primary_key=True)
    sample_index: Mapped[int] = mapped_column(primary_key=True)
    judge: Mapped[str] = mapped_column(primary_key=True)
    verdict: Mapped[str]
