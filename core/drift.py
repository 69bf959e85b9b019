"""How sure a measured share, mean or difference is: the interval that every figure of a report carries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value, its confidence interval, and how many items it rests on."""

    value: float
    lo: float
    hi: float
    n: int


def wilson(successes: int, n: int, z: float = 1.96) -> tuple[float, float] | None:
    """Wilson's score interval (1927) for the share `successes / n`, 95% at z = 1.96; None when n = 0.

    Unlike the normal interval it stays in [0, 1], holds the share, and does not shrink to a point at 0 or n successes.

    Raises:
        ValueError: `successes` is not in 0..n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes: expected 0..{n}, got {successes}")
    if n == 0:
        return None
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # At 0 and n successes one end is the share itself; rounding must not put it past.
    return min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half))


def share(successes: int, n: int) -> Estimate | None:
    """`successes / n` with its 95% Wilson interval; None when n = 0. Raises as `wilson` does."""
    interval = wilson(successes, n)
    return Estimate(successes / n, *interval, n) if interval else None


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Estimate | None:
    """The mean of n items with its normal interval; None for fewer than two, which show no spread.

    For k samples an item give each item's mean, not the samples: those of one item are not independent (pass@1 over
    n questions of k rollouts rests on n, and its error is the spread between questions). The interval may leave the
    values' own range.
    """
    if len(values) < 2:
        return None
    mean = fmean(values)
    half = NormalDist().inv_cdf((1 + confidence) / 2) * stdev(values) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half, len(values))


def interval_of_sums(n: int, total: float, squares: float, confidence: float = 0.95) -> Estimate | None:
    """`mean_interval` of n values of which the sum and the sum of the squares are known, as a database has them."""
    if n < 2:
        return None
    mean = total / n
    variance = max(0.0, (squares - n * mean * mean) / (n - 1))
    half = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(variance / n)
    return Estimate(mean, mean - half, mean + half, n)


def paired_difference(before: Sequence[float], after: Sequence[float], confidence: float = 0.95) -> Estimate | None:
    """The mean of `after - before` over the same n items, with its interval; None for fewer than two.

    Pairing takes out the spread between easy and hard items, so it sees what two separate intervals cannot.

    Raises:
        ValueError: as many values of `after` as of `before` were expected.
    """
    if len(before) != len(after):
        raise ValueError(f"after: expected {len(before)} values, one for each item of `before`, got {len(after)}")
    return mean_interval([a - b for b, a in zip(before, after, strict=True)], confidence)
