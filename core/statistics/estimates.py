"""Estimates: a share, a mean or a difference with its 95% interval and the number of items that it rests on.

Every share over items has one kind of interval (`mean_share`), whether an item is right or wrong (`share`) or has a
share of its own, as pass@1 over questions. `tests/core/test_coverage.py` simulates how often it contains the truth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import fmean, variance
from typing import Annotated, Any, Literal

from pydantic import Field

# Both sums of squares of `mean_share` get this much more. Chosen by simulation: without it, a few items that happen to
# agree would promise that all do; with more, the intervals of items that are equally hard become too wide.
_IMAGINED = 0.1
_FEW = 3.5  # successes, or failures, for which Wilson's interval is too short on the side of the rare ones


# What an interval is of. count: a number of right items among n that are right or wrong, each of which counts the same.
# share: a mean of shares or a weighted one, at its effective number of items. mean: any other figure.
Interval = Literal["count", "share", "mean"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value, its 95% interval, the number of items that it rests on, and what the interval is of."""

    value: float
    lo: float
    hi: float
    n: int
    # Not among the figures that REST returns: the drift rules need it.
    interval: Annotated[Interval, Field(exclude=True)] = field(default="mean", compare=False)

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


@lru_cache(maxsize=4_096)
def t95(df: int) -> float:
    """Standard errors to either end of Student's 95% interval: 12.7 with one degree of freedom, 1.96 with very many."""
    from scipy.special import stdtrit  # slow to import, and few callers need it

    return float(stdtrit(max(df, 1), 0.975))


def wilson(successes: int, n: int) -> tuple[float, float] | None:
    """The 95% interval of the share `successes / n`, as in `wilson_at`; None when n = 0.

    Raises:
        ValueError: `successes` is not in 0..n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes: expected 0..{n}, got {successes}")
    return wilson_at(successes / n, n, n) if n else None


def wilson_at(p: float, n: float, items: int) -> tuple[float, float]:
    """The 95% interval of a share p that is as precise as that of `n` independent successes or failures.

    n need not be whole: it is the effective number if p is the mean over `items` of shares, or a weighted one.

    It is Wilson's score interval (1927) with Student's quantile for `items` instead of the normal one. With a thousand
    items there is no difference; with few, Wilson's own contains the truth too seldom (in 88% of cases for 4 items at
    p = 0.5). With one to three successes, the lower end is that of Clopper and Pearson (1934) at 5%, if that is lower;
    likewise the upper end with few failures (Brown, Cai and DasGupta 2001 do so with the Poisson limit). Unlike the
    normal interval, it stays in [0, 1], contains the share, and does not shrink to a point at 0 or 1.
    """
    t = t95(items - 1)
    centre = (p + t * t / (2 * n)) / (1 + t * t / n)
    half = t * math.sqrt(max(0.0, p * (1 - p)) / n + t * t / (4 * n * n)) / (1 + t * t / n)
    # If p is 0 or 1, one end is p itself, and rounding must not move it past p.
    lo, hi = min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half))
    return min(lo, _rare_limit(p * n, n)), max(hi, 1 - _rare_limit((1 - p) * n, n))


def _rare_limit(successes: float, n: float) -> float:
    """The lower limit of a share with few successes; 1 if they are none or not few."""
    if not 0 < successes < _FEW:
        return 1.0
    from scipy.special import betaincinv  # slow to import, and few callers need it

    return float(betaincinv(successes, n - successes + 1, 0.05))


def share(successes: int, n: int) -> Estimate | None:
    """`successes / n` with its 95% interval; None when n = 0. Raises as `wilson` does."""
    interval = wilson(successes, n)
    return Estimate(successes / n, *interval, n, "count") if interval else None


def mean(values: Sequence[float] | Sums) -> Estimate | None:
    """The mean of n items with Student's interval; None for fewer than two, which show no spread.

    If there are k samples of each item, pass the items' means and not the samples, because the samples of one item are
    not independent: pass@1 over n questions with k rollouts each rests on n questions, and its error is the spread
    between questions. The interval may go beyond the range of the values. If all values are equal, it is a point,
    because nothing is known of their scale; of shares, take `mean_share`.
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
    half = t95(n - 1) * math.sqrt(spread / n)
    return Estimate(centre, centre - half, centre + half, n)


def mean_share(values: Sequence[float] | Sums) -> Estimate | None:
    """The mean of shares, one of each item and each in 0..1, with its 95% interval; None without items.

    The interval is `wilson_at`'s at the effective number of items: n times the variance that n successes or failures
    with this mean would have, over that of the items. So it is `share`'s if all items are 0 or 1, and narrower the
    more they are alike. Of items that are 0 or 1 throughout, nothing is known but that; they count as n.

    In simulations (`tests/core/test_coverage.py`) it contains the truth in 94 to 97% of cases from 20 items on, unless
    all items are equally hard. With fewer it does so more often, up to always with two or three.
    """
    sums = (
        values if isinstance(values, Sums) else Sums(len(values), math.fsum(values), math.fsum(x * x for x in values))
    )
    if sums.n == 0:
        return None
    p = min(max(sums.total / sums.n, 0.0), 1.0)  # in this order, NaN stays NaN
    of_items, of_trials = max(0.0, sums.squares - sums.n * p * p), sums.n * p * (1 - p)
    effective = sums.n * max(1.0, (of_trials + _IMAGINED) / (of_items + _IMAGINED))
    all_or_nothing = sums.squares == sums.total  # every item is 0 or 1
    return Estimate(p, *wilson_at(p, effective, sums.n), sums.n, "count" if all_or_nothing else "share")


def paired_share_difference(before: Sequence[float], after: Sequence[float]) -> Estimate | None:
    """The mean of `after - before` over the same n items, where both are shares; None without items.

    Such differences lie in -1..1, and their interval is that of `mean_share`, stretched to this range. So it is not a
    point if no item differs: a difference of less than about one item in n would not have shown.

    Raises:
        ValueError: `after` does not have as many values as `before`.
    """
    if len(before) != len(after):
        raise ValueError(f"after: expected {len(before)} values, one for each item of `before`, got {len(after)}")
    return stretched(mean_share([(1 + new - old) / 2 for old, new in zip(before, after, strict=True)]))


def stretched(estimate: Estimate | None) -> Estimate | None:
    """An estimate of (1 + d) / 2, which is in 0..1, as one of the difference d, which is in -1..1."""
    return estimate and Estimate(2 * estimate.value - 1, 2 * estimate.lo - 1, 2 * estimate.hi - 1, estimate.n)


def pair_share(counts: Sequence[int]) -> Estimate | None:
    """The share of the pairs of n items that are of one kind, with its 95% interval; None for fewer than two items.

    `counts` has the number of items of each kind. Unlike the number of kinds, and unlike an entropy, the share does not
    depend on n (Simpson 1949). It is a U-statistic. With h, the share of the other items that are of an item's kind,
    its variance is (4 (n - 2) Var(h) + 2 p (1 - p)) / (n (n - 1)) (Hoeffding 1948, 5.13), and the interval is
    `wilson_at`'s for as many independent pairs as have this variance. If all pairs agree, n pairs count as independent.
    """
    n = sum(counts)
    if n < 2:
        return None
    p = sum(count * (count - 1) for count in counts) / (n * (n - 1))
    of_items = sum(count * ((count - 1) / (n - 1) - p) ** 2 for count in counts) / n
    variance = (4 * (n - 2) * of_items + 2 * p * (1 - p)) / (n * (n - 1))
    return Estimate(p, *wilson_at(p, p * (1 - p) / variance if variance else n, n), n, "share")


def average(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of at least one estimate over different items, each of which counts the same. n is that of all items.

    The interval is made from theirs by the square-and-add method, as in `difference`.
    """
    k = len(estimates)
    value = math.fsum(estimate.value for estimate in estimates) / k
    below = math.hypot(*(estimate.value - estimate.lo for estimate in estimates)) / k
    above = math.hypot(*(estimate.hi - estimate.value for estimate in estimates)) / k
    return Estimate(value, value - below, value + above, sum(estimate.n for estimate in estimates))


def difference(now: Estimate, before: Estimate) -> Estimate:
    """`now - before` for two estimates that share no items. n is the smaller of the two.

    The 95% interval is made from theirs by the square-and-add method (Newcombe 1998, method 10).
    """
    value = now.value - before.value
    lo = value - math.hypot(now.value - now.lo, before.hi - before.value)
    hi = value + math.hypot(now.hi - now.value, before.value - before.lo)
    return Estimate(value, lo, hi, min(now.n, before.n))
