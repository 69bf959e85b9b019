"""What oracles and people say about pseudo-labels."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from storage.models.base import NARROW, Base, question_key


class OracleLabels(Base):
    __tablename__ = "oracle_labels"
    __table_args__ = (Index(None, "run", "iteration", "index", "oracle", "verdict"), NARROW)

    question_id: Mapped[str] = question_key()
    oracle: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str]  # run, iteration and index are copied from the question
    iteration: Mapped[int]
    index: Mapped[int]
    verdict: Mapped[str]
    truth: Mapped[str | None]


class AuditSamples(Base):
    """The pseudo-labels drawn for an oracle that grades a sample. Its figures count only these, weighted by stratum."""

    __tablename__ = "audit_samples"
    __table_args__ = (Index(None, "run", "iteration", "oracle", "position"),)

    question_id: Mapped[str] = question_key()
    oracle: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str]
    iteration: Mapped[int]
    stratum: Mapped[str]
    position: Mapped[int]  # the order in which the oracle is asked; the same in a larger sample


class Annotations(Base):
    """One person's verdict on a pseudo-label. What people agree on is stored as the oracle label of `human`."""

    __tablename__ = "annotations"

    question_id: Mapped[str] = question_key()
    annotator: Mapped[str] = mapped_column(primary_key=True)
    verdict: Mapped[str]  # `unknown`: the person skipped the question
    note: Mapped[str]
    made_at: Mapped[datetime]
