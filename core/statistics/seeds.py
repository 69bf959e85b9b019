"""Figures over seeds, and how much two arms differ: over their seeds, and over the choice of questions.

How much another training would differ shows only between seeds. So the seeds decide whether arms differ; the questions
alone say how precisely these very trainings were measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, sqrt
from statistics import fmean, variance

from core.statistics.estimates import Estimate, t95

# With fewer seeds an arm there is no p. The sign test of four seeds cannot be below 0.125, and the t test of so few
# rests on the assumption that seeds are normally distributed, which so few cannot show to be wrong.
LEAST_SEEDS = 5
_ROUNDING = 1e-12  # of floating point, in which 0.3 - 0.2 is not 0.2 - 0.1


@dataclass(frozen=True, slots=True)
class SeedTest:
    """How much higher one arm's mean over seeds is than another's, with Student's 95% interval.

    If `paired`, the interval is that of the differences between runs of the same seed, and n is the number of seeds.
    Otherwise it has Welch's error (1938), and n is the smaller number of seeds, which the degrees of freedom are taken
    from: with Welch's own, 10% of intervals for 2 seeds against 12 leave out the truth. `p` is that of the t test and
    `sign_p` that of the exact sign test over the pairs, both two-sided. Both are None below `LEAST_SEEDS`, and `sign_p`
    without pairs too.
    """

    estimate: Estimate
    paired: bool
    p: float | None
    sign_p: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """How much higher one arm's figure is than another's.

    `over_seeds` is the primary figure; None if one of the arms has a single run. `over_questions` has its interval over
    the choice of questions, for these very trainings, and says nothing about another seed. `by_seed` are the
    differences of the pairs of runs with the same seed; empty if the runs are not paired.
    """

    value: float
    over_seeds: SeedTest | None
    over_questions: Estimate
    by_seed: list[float]


Runs = Sequence[tuple[int, float]]  # seed and value of each run of an arm


def over_seeds(values: Sequence[float], is_share: bool, grain: float = 0.0) -> Estimate | None:
    """The mean over seeds, with Student's 95% interval, which is cut off at 0 and 1 if the values are shares.

    `grain` is the step between values: 1/n for the share of n questions. Seeds that agree may differ by less than that,
    so rounding to it adds its variance (Sheppard 1898). None if there are fewer than two seeds, or if they all agree
    and there is no grain, since they show no spread then.
    """
    if len(values) < 2:
        return None
    spread = variance(values) + grain**2 / 12
    if spread < _ROUNDING**2:
        return None
    return _interval(fmean(values), sqrt(spread / len(values)), len(values), (0, 1) if is_share else None)


def seed_pairs(baseline: Runs, arm: Runs) -> list[tuple[int, int]]:
    """The positions in `baseline` and `arm` of the runs that have the same seed.

    They are all pairs that there are if each seed occurs once in an arm and one arm has all seeds of the other; else
    there are none, because pairs would leave runs out on both sides.
    """
    ours, theirs = [seed for seed, _ in arm], [seed for seed, _ in baseline]
    repeats = len({*ours}) < len(ours) or len({*theirs}) < len(theirs)
    if repeats or not ({*ours} <= {*theirs} or {*theirs} <= {*ours}):
        return []
    return [(theirs.index(seed), position) for position, seed in enumerate(ours) if seed in theirs]


def compare_seeds(baseline: Runs, arm: Runs, grain: float = 0.0) -> SeedTest | None:
    """How much higher the mean of `arm` is than that of `baseline`: a paired t test over seeds if `seed_pairs` has two
    pairs or more, else Welch's. None if that takes more runs. `grain` is as in `over_seeds`.

    While the arms do not differ, at most 5% of the intervals leave out 0, from two seeds on (`tests/core/test_seeds.py`
    simulates it).
    """
    pairs = seed_pairs(baseline, arm)
    if len(pairs) >= 2:
        differences = [arm[ours][1] - baseline[theirs][1] for theirs, ours in pairs]
        error = sqrt((variance(differences) + grain**2 / 6) / len(pairs))
        return _test(fmean(differences), error, len(pairs), differences)
    if min(len(baseline), len(arm)) < 2:
        return None
    values = [[value for _, value in runs] for runs in (baseline, arm)]
    error = sqrt(sum((variance(of_arm) + grain**2 / 12) / len(of_arm) for of_arm in values))
    return _test(fmean(values[1]) - fmean(values[0]), error, min(map(len, values)), None)


def _test(value: float, error: float, n: int, differences: Sequence[float] | None) -> SeedTest | None:
    if error < _ROUNDING:  # seeds that agree without a grain show no spread
        return None
    p = sign_p = None
    if n >= LEAST_SEEDS:
        from scipy.special import stdtr  # slow to import, and few callers need it

        p = 2 * float(stdtr(n - 1, -abs(value) / error))
        sign_p = None if differences is None else sign_test(differences)
    return SeedTest(_interval(value, error, n), differences is not None, p, sign_p)


def sign_test(differences: Sequence[float]) -> float:
    """The two-sided p of the exact sign test, in which zeros do not count (Dixon and Mood 1946)."""
    up, down = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    ways = sum(comb(up + down, i) for i in range(min(up, down) + 1))
    return min(1.0, float(2 * ways / 2 ** (up + down)))


def _interval(value: float, error: float, n: int, limits: tuple[float, float] | None = None) -> Estimate:
    lo, hi = value - t95(n - 1) * error, value + t95(n - 1) * error
    return Estimate(value, max(lo, limits[0]), min(hi, limits[1]), n) if limits else Estimate(value, lo, hi, n)
