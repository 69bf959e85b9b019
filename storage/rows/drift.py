"""The series of a run, and its alerts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from core.statistics.estimates import Estimate, Interval

Slice = Literal["kept", "all"]  # of an iteration's questions
Over = Slice | Literal[""]  # what a series is over; "": over no questions
Severity = Literal["warning", "critical"]


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """One figure of one iteration."""

    iteration: int
    name: str
    over: Over
    oracle: str  # empty if no oracle is involved
    value: float
    lo: float | None  # 95% interval; None for a figure without one
    hi: float | None
    n: int
    estimated: bool = False  # from p_hat and the audits of other iterations, not measured
    interval: Interval | None = None  # what kind it is; None for a figure without one

    @classmethod
    def of(
        cls,
        estimate: Estimate,
        iteration: int,
        name: str,
        over: Over = "",
        oracle: str = "",
        estimated: bool = False,
    ) -> SeriesPoint:
        value, lo, hi, n = estimate.value, estimate.lo, estimate.hi, estimate.n
        return cls(iteration, name, over, oracle, value, lo, hi, n, estimated, estimate.interval)

    @property
    def estimate(self) -> Estimate | None:
        if self.lo is None or self.hi is None:
            return None
        return Estimate(self.value, self.lo, self.hi, self.n, self.interval or "mean")


@dataclass(frozen=True, slots=True)
class StepLabelFigures:
    """The labels of one step of an iteration's training; n are different questions.

    `accuracy`: right ones of the labels. `labelled`: the share of the prompts that got one; the method abstained from
    the others. `negatives`: wrong ones of the answers that SCRL takes for wrong. None where there are none.
    """

    iteration: int
    step: int
    oracle: str
    accuracy: Estimate | None
    labelled: Estimate | None
    negatives: Estimate | None


@dataclass(frozen=True, slots=True)
class AlertRow:
    """A finding of a rule. `id` derives from the finding, so the same finding has the same id."""

    id: str
    run: str
    iteration: int
    rule: str
    series: str
    over: Over
    oracle: str
    severity: Severity
    value: float
    lo: float | None
    hi: float | None
    n: int | None
    reference: float | None  # the value that `value` is compared with
    threshold: float | None
    text: str
    raised_at: datetime
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """An alert on its way to a target."""

    alert: str
    target: str
    attempts: int
    next_at: datetime
    delivered_at: datetime | None
    error: str | None
