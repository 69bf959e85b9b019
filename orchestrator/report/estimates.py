"""A figure with its 95% interval and the number of items that it rests on.

A share of questions has Wilson's interval; a mean over questions the normal one, over questions and not over samples,
since the samples of one question are not independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from core.changes import difference
from core.drift import Estimate, mean_interval, paired_difference, share
from storage.rows import SeriesPoint


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure; `ci95` is None where a single item shows no spread."""

    value: float
    ci95: tuple[float, float] | None
    n: int


def mean_of(values: Sequence[float]) -> Measured | None:
    """None without values, as with the others here."""
    return _measured(mean_interval(values)) or (Measured(fmean(values), None, len(values)) if values else None)


def mean_share_of(values: Sequence[float]) -> Measured | None:
    """The mean of shares: the normal interval may leave 0..1, what it is of cannot."""
    found = mean_of(values)
    if found is None or found.ci95 is None:
        return found
    lo, hi = found.ci95
    return Measured(found.value, (max(lo, 0.0), min(hi, 1.0)), found.n)


def measured_in(point: SeriesPoint) -> Measured:
    """A figure of the run's series as it is."""
    interval = None if point.lo is None or point.hi is None else (point.lo, point.hi)
    return Measured(point.value, interval, point.n)


def share_of(successes: int, n: int) -> Measured | None:
    return _measured(share(successes, n))


def difference_of(before: Sequence[float], after: Sequence[float]) -> Measured | None:
    """After less before, over pairs."""
    return _measured(paired_difference(before, after))


def change_between(before: Measured, after: Measured) -> Measured | None:
    """After less before, of two that share no items; None where one of them has no interval."""
    if before.ci95 is None or after.ci95 is None:
        return None
    return _measured(
        difference(Estimate(after.value, *after.ci95, after.n), Estimate(before.value, *before.ci95, before.n))
    )


def _measured(found: Estimate | None) -> Measured | None:
    return None if found is None else Measured(found.value, (found.lo, found.hi), found.n)
