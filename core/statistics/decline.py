"""Whether a Solver answers a benchmark worse than the best one so far: the guard's signal `decline`.

The two Solvers are compared question by question. As long as a Solver does not change, each question's difference is as
often positive as negative, whatever its difficulty and the number of samples. So the test is the exact sign-flip test
(Fisher 1935): how often a sum of these differences with random signs is as low as the measured one. It holds for any
number of questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, lcm, sqrt
from statistics import NormalDist, fmean

import numpy as np

from core.statistics.alerts import Alerts
from core.types import Evaluated

_LARGEST_RANGE = 2**18  # of the exact distribution; beyond it, so many answers differ that the normal one is as good


@dataclass(frozen=True, slots=True)
class Fall:
    """How far pass@1 is below that of the best earlier iteration, on the same n questions.

    `p` is the chance of such a fall if the Solver had not changed, and `limit` the one below which a run counts it.
    """

    now: float
    best: float
    n: int
    p: float
    limit: float

    @property
    def points(self) -> float:
        return self.best - self.now


def fall_from(best: Sequence[Evaluated], now: Sequence[Evaluated], earlier: int, settings: Alerts) -> Fall | None:
    """The fall of an iteration's results from those of the best of `earlier` iterations, on the questions that both
    have; None if they share none.

    In a run whose Solver does not change, any fall counts within `settings.iterations` iterations with a probability
    of at most `settings.rate`, as for the drift rules: each iteration has an equal part of the rate (Bonferroni), and
    divides it evenly among the earlier iterations, because any of them may have been the best by chance.
    """
    results = {result.item_id: result for result in now}
    pairs = [(old, results[old.item_id]) for old in best if old.item_id in results]
    if not pairs:
        return None
    rates = [[result.correct / result.samples for result in side] for side in zip(*pairs, strict=True)]
    scale = lcm(*(result.samples for pair in pairs for result in pair))
    p = fall_p([scale // new.samples * new.correct - scale // old.samples * old.correct for old, new in pairs])
    limit = settings.rate / settings.iterations / earlier
    return Fall(fmean(rates[1]), fmean(rates[0]), len(pairs), p, limit)


def fall_p(differences: Sequence[int]) -> float:
    """The one-sided p of the exact sign-flip test: P(sum of the differences with random signs <= their sum).

    The distribution of that sum is the inverse Fourier transform of the product of the cosines of its terms.
    """
    unit = gcd(*differences) or 1
    sizes = Counter(abs(difference) // unit for difference in differences if difference)
    largest = sum(size * count for size, count in sizes.items())
    if 2 * largest >= _LARGEST_RANGE:
        return NormalDist().cdf(sum(differences) / sqrt(sum(difference**2 for difference in differences)))
    angles = 2 * np.pi * np.arange(largest + 1) / (2 * largest + 1)
    transform = np.prod([np.cos(size * angles) ** count for size, count in sizes.items()], axis=0, initial=1.0)
    chances = np.fft.irfft(transform * np.ones(largest + 1), 2 * largest + 1)  # of the sums 0, 1, …, then …, -2, -1
    observed = sum(differences) // unit
    below = chances[largest + 1 :]
    tail = below[: observed + largest + 1].sum() if observed < 0 else below.sum() + chances[: observed + 1].sum()
    return float(min(1.0, max(0.0, tail)))
