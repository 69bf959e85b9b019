"""The series of a run, and its alerts."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from storage.models.base import NARROW, Base, run_key


class Series(Base):
    """One figure of one iteration, computed from other tables, so that the figures of a run are read quickly.

    `over` names the questions that the figure is over (`kept`, `all`), and `oracle` the oracle that it is by. Each is
    empty if the figure has none.
    """

    __tablename__ = "series"
    __table_args__ = NARROW

    run: Mapped[str] = run_key()
    iteration: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    over: Mapped[str] = mapped_column(primary_key=True)
    oracle: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float]
    lo: Mapped[float | None]  # None: the figure has no interval
    hi: Mapped[float | None]
    n: Mapped[int]
    estimated: Mapped[bool]  # from p_hat and the audits of other iterations, not measured
    interval: Mapped[str | None]  # count, share or mean (`core.statistics.estimates`); None: the figure has none


class Alerts(Base):
    """What a rule or the guard found. It is stored once, by the process that finds it first."""

    __tablename__ = "alerts"
    __table_args__ = (Index(None, "raised_at", "id"), Index(None, "run", "iteration"))

    id: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(ForeignKey("runs.name", ondelete="CASCADE"))
    iteration: Mapped[int]
    rule: Mapped[str]
    series: Mapped[str]
    over: Mapped[str]
    oracle: Mapped[str]
    severity: Mapped[str]
    value: Mapped[float]
    lo: Mapped[float | None]
    hi: Mapped[float | None]
    n: Mapped[int | None]
    reference: Mapped[float | None]  # what `value` is compared with
    threshold: Mapped[float | None]
    text: Mapped[str]
    raised_at: Mapped[datetime]
    acknowledged_at: Mapped[datetime | None]
    acknowledged_by: Mapped[str | None]
    note: Mapped[str]


class Deliveries(Base):
    """The delivery of an alert to a target. Without a row, no delivery to the target has been tried."""

    __tablename__ = "deliveries"

    alert: Mapped[str] = mapped_column(ForeignKey("alerts.id", ondelete="CASCADE"), primary_key=True)
    target: Mapped[str] = mapped_column(primary_key=True)
    attempts: Mapped[int]
    next_at: Mapped[datetime]  # time of the next attempt; each attempt first postpones it
    delivered_at: Mapped[datetime | None]
    error: Mapped[str | None]
