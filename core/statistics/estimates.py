"""Estimates: a share, a mean or a difference with its 95% interval and the number of items that it rests on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Any

Z95 = 1.96  # standard errors to either end of a normal 95% interval


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value, its 95% interval, and the number of items that it rests on."""

    value: float
    lo: float
    hi: float
    n: int

    def as_json(self) -> dict[str, Any]:
        return {"value": self.value, "ci95": [self.lo, self.hi], "n": self.n}


@dataclass(frozen=True, slots=True)
class Sums:
    """The sum of n values and the sum of their squares, from which mean and variance follow."""

    n: int
    total: float
    squares: float

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.n + other.n, self.total + other.total, self.squares + other.squares)


def wilson(successes: int, n: int, z: float = Z95) -> tuple[float, float] | None:
    """Wilson's score interval (1927) for the share `successes / n`, 95% at the default z; None when n = 0.

    Unlike the normal interval, it stays in [0, 1], contains the share, and does not shrink to a point at 0 or n
    successes.

    Raises:
        ValueError: `successes` is not in 0..n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes: expected 0..{n}, got {successes}")
    return wilson_at(successes / n, n, z) if n else None


def wilson_at(p: float, n: float, z: float = Z95) -> tuple[float, float]:
    """Wilson's interval for a share p at an effective number of items, which need not be whole."""
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(max(0.0, p * (1 - p)) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # If p is 0 or 1, one end is p itself, and rounding must not move it past p.
    return min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half))


def share(successes: int, n: int) -> Estimate | None:
    """`successes / n` with its 95% Wilson interval; None when n = 0. Raises as `wilson` does."""
    interval = wilson(successes, n)
    return Estimate(successes / n, *interval, n) if interval else None


def mean(values: Sequence[float] | Sums) -> Estimate | None:
    """The mean of n items with its normal interval; None for fewer than two, which show no spread.

    If there are k samples of each item, pass the items' means and not the samples, because the samples of one item are
    not independent: pass@1 over n questions with k rollouts each rests on n questions, and its error is the spread
    between questions. The interval may go beyond the range of the values.
    """
    if isinstance(values, Sums):
        if values.n < 2:
            return None
        n, centre = values.n, values.total / values.n
        spread = max(0.0, (values.squares - n * centre * centre) / (n - 1))
    else:
        if len(values) < 2:
            return None
        n, centre = len(values), fmean(values)
        spread = variance(values)
    half = Z95 * math.sqrt(spread / n)
    return Estimate(centre, centre - half, centre + half, n)


def mean_share(values: Sequence[float] | Sums) -> Estimate | None:
    """The mean of shares. Its interval is that of `mean`, cut off at 0 and 1. None without items.

    If all shares are 0, or all are 1, they show no spread; then it is Wilson's interval for as many failures or
    successes. For a single item with another share it is 0..1.
    """
    sums = values if isinstance(values, Sums) else Sums(len(values), math.fsum(values), 0.0)
    if sums.n and sums.total in (0, sums.n):
        return share(int(sums.total), sums.n)
    if sums.n == 1:
        return Estimate(sums.total, 0.0, 1.0, 1)
    estimate = mean(values)
    return estimate and Estimate(estimate.value, max(estimate.lo, 0.0), min(estimate.hi, 1.0), estimate.n)


def paired_difference(before: Sequence[float], after: Sequence[float]) -> Estimate | None:
    """The mean of `after - before` over the same n items, with its interval; None for fewer than two.

    Pairing removes the spread between easy and hard items, so it detects differences that two separate intervals do
    not.

    Raises:
        ValueError: `after` does not have as many values as `before`.
    """
    if len(before) != len(after):
        raise ValueError(f"after: expected {len(before)} values, one for each item of `before`, got {len(after)}")
    return mean([new - old for old, new in zip(before, after, strict=True)])


def difference(now: Estimate, before: Estimate) -> Estimate:
    """`now - before` for two estimates that share no items. n is the smaller of the two.

    The 95% interval is made from theirs by the square-and-add method. From two Wilson intervals this gives Newcombe's
    tenth interval (1998), from two normal ones the normal interval.
    """
    value = now.value - before.value
    lo = value - math.hypot(now.value - now.lo, before.hi - before.value)
    hi = value + math.hypot(now.hi - now.value, before.value - before.lo)
    return Estimate(value, lo, hi, min(now.n, before.n))
