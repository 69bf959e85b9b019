"""Figures over seeds and over benchmarks, and the comparison of two arms or models on the same questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from core.statistics.estimates import Estimate

Floats = NDArray[np.float64]

_CHUNK = 500  # resamples computed together, which bounds the memory


@dataclass(frozen=True, slots=True)
class Difference:
    """How much higher one arm's figure is than another's.

    The interval and the two-sided `p` are those of a paired bootstrap; n is the number of questions. `by_seed` are the
    differences of the single seeds.
    """

    estimate: Estimate
    p: float
    by_seed: list[float]


def over_seeds(values: Sequence[float], is_share: bool) -> Estimate | None:
    """The mean over seeds, with Student's 95% interval, which is cut off at 0 and 1 if the values are shares.

    None if there are fewer than two.
    """
    if len(values) < 2:
        return None
    from scipy.special import stdtrit  # slow to import, and few callers need it

    half = float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / sqrt(len(values))
    mean = fmean(values)
    low, high = (max(0.0, mean - half), min(1.0, mean + half)) if is_share else (mean - half, mean + half)
    return Estimate(mean, low, high, len(values))


def paired_bootstrap(differences: Sequence[Sequence[float]], draws: int = 2_000) -> Difference:
    """The mean of differences[seed][question], of S seeds and the same Q questions for all of them.

    Each draw takes Q questions and S seeds with replacement, so the interval covers both the choice of questions and
    that of seeds; with few seeds it is a rough one. The interval is the percentile one. `p` is twice the smaller share
    of draws on either side of 0 (Efron and Tibshirani 1993, chapters 13 and 15). The draws are always the same.
    """
    table = np.asarray(differences, dtype=np.float64)
    random = np.random.default_rng(0)
    means = np.concatenate([_means(table, min(_CHUNK, draws - start), random) for start in range(0, draws, _CHUNK)])
    return _difference(float(table.mean()), means, table.shape[1], table.mean(axis=1).tolist())


def average_bootstrap(benchmarks: Sequence[Sequence[float]], draws: int = 2_000) -> Difference:
    """The average of several benchmarks' means, each of which counts the same, as in R-Zero's Tables 1 and 2.

    benchmarks[i] has the values of benchmark i's questions, or the differences between two models on them. Each draw
    takes as many questions of each benchmark as it has, with replacement. n is the number of all questions. The rest is
    as in `paired_bootstrap`; a benchmark whose values are all the same adds nothing to the interval.
    """
    random = np.random.default_rng(0)
    averages = np.mean([_means_of_one(values, draws, random) for values in benchmarks], axis=0)
    average = fmean(map(fmean, benchmarks))
    return _difference(average, averages, sum(map(len, benchmarks)), [average])


def _means_of_one(values: Sequence[float], draws: int, random: np.random.Generator) -> Floats:
    """(draws,) means of resamples. How often each different value is drawn is enough, and faster than each question."""
    different, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    shares = counts / len(values)
    sums = [
        random.multinomial(len(values), shares, size=min(_CHUNK, draws - start)) @ different
        for start in range(0, draws, _CHUNK)
    ]
    means: Floats = np.concatenate(sums) / len(values)
    return means


def _difference(value: float, means: Floats, n: int, by_seed: list[float]) -> Difference:
    """The percentile interval and the two-sided p of resampled means."""
    low, high = np.quantile(means, [0.025, 0.975])
    tail = min(int((means <= 0).sum()), int((means >= 0).sum()))
    p = min(1.0, 2 * (tail + 1) / (len(means) + 1))
    return Difference(Estimate(value, float(low), float(high), n), p, by_seed)


def _means(table: Floats, draws: int, random: np.random.Generator) -> Floats:
    """(draws,) means of resamples of seeds and questions."""
    seeds, questions = table.shape
    question_counts = random.multinomial(questions, np.full(questions, 1 / questions), size=draws)  # (draws, Q)
    seed_counts = random.multinomial(seeds, np.full(seeds, 1 / seeds), size=draws)  # (draws, S)
    sums: Floats = (seed_counts * (question_counts @ table.T)).sum(axis=1)
    means: Floats = sums / (seeds * questions)
    return means
