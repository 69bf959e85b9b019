"""Label accuracy between audits, estimated from p_hat: how often audited labels with the same p_hat were right.

This is an estimate and not a measurement. It assumes that a p_hat means the same in one iteration as in the audited
ones. A Solver that becomes sure of wrong answers breaks this assumption, and only an audit shows it. So the estimate
comes with a check: each audited iteration is estimated from the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from core.statistics.estimates import Estimate, t95, wilson_at

_DRAWS = 200  # of the bootstrap

Floats = NDArray[np.float64]
Population = Mapping[float, int]  # p_hat -> pseudo-labels


@dataclass(frozen=True, slots=True)
class Cell:
    """Of the pseudo-labels of an iteration with this p_hat, `n` were audited and `right` of these are right."""

    iteration: int
    p_hat: float
    n: int
    right: int


@dataclass(frozen=True, slots=True)
class Fold:
    """An audited iteration: its accuracy as estimated from the other ones, and as measured."""

    iteration: int
    estimated: Estimate
    measured: Estimate

    @property
    def covered(self) -> bool:
        """Whether the interval of the estimate contains the measured value."""
        return self.estimated.lo <= self.measured.value <= self.estimated.hi


@dataclass(frozen=True, slots=True)
class Check:
    """How far the estimates were from the measured values, iteration by iteration.

    The mean of estimated - measured is omitted. Each estimate is made from the other iterations, so these differences
    nearly cancel by construction, however wrong the estimate of a new iteration is.
    """

    folds: tuple[Fold, ...]

    @property
    def error(self) -> float:
        """The mean of |estimated - measured|."""
        return float(np.mean([abs(fold.estimated.value - fold.measured.value) for fold in self.folds]))

    @property
    def covered(self) -> int:
        """In how many folds the interval contains the measured value."""
        return sum(fold.covered for fold in self.folds)


def estimate_accuracy(audited: Sequence[Cell], population: Population, seed: int = 0) -> Estimate | None:
    """Estimate the label accuracy of a set with these p_hats from the audits of other iterations.

    `n` of the estimate is the number of audits. None if there are no audits, or for an empty set.

    The chance that a label is right is fitted as a non-decreasing function of p_hat (isotonic least squares, linear
    between the p_hats that occur and constant beyond them) and averaged over the set. The 95% interval is Student's,
    within 0..1. Its variance is the sum of two: that of a bootstrap of the audits within each iteration and of the set
    itself, with a fixed seed; and the mean squared error when each audited iteration is estimated from the others,
    because iterations differ by more than chance. The second rests on as few values as there are audited iterations,
    so the degrees of freedom are those of Satterthwaite (1946). With a single audited iteration it is unknown, and the
    interval is 0 to 1. At either end, it is not narrower than that of the value as a share of n audits: audits that all
    agree, in all iterations, have no spread.
    """
    return _estimate(tuple(audited), tuple(sorted(population.items())), seed)


@lru_cache(maxsize=2_048)  # a page of audits asks again and again, with hundreds of fits for each iteration
def _estimate(audited: tuple[Cell, ...], population: tuple[tuple[float, int], ...], seed: int) -> Estimate | None:
    table = _Table.of(audited)
    weights = np.array([count for _, count in population], dtype=np.float64)
    if not table.n.sum() or not weights.sum():
        return None
    p_hats = np.array([p_hat for p_hat, _ in population], dtype=np.float64)
    value = _predict(table.p_hats, table.n.sum(axis=0), table.right.sum(axis=0), p_hats, weights)
    generator = np.random.default_rng(seed)
    draws = [
        _predict(table.p_hats, n, right, p_hats, drawn_weights)
        for n, right, drawn_weights in zip(*table.resampled(generator), _resample(weights, generator), strict=True)
    ]
    n, of_draws, of_iterations = int(table.n.sum()), float(np.var(draws)), table.mean_squared_error()
    if of_iterations is None:
        return Estimate(value, 0.0, 1.0, n)
    variance = of_draws + of_iterations
    df = (len(table.n) - 1) * (variance / of_iterations) ** 2 if of_iterations else math.inf
    half = t95(int(min(df, 10**6))) * math.sqrt(variance)
    lo, hi = wilson_at(value, n, n)
    return Estimate(value, max(0.0, min(lo, value - half)), min(1.0, max(hi, value + half)), n)


def calibration_check(
    audited: Sequence[Cell], populations: Mapping[int, Population], measured: Mapping[int, Estimate], seed: int = 0
) -> Check | None:
    """Estimate each measured iteration from the audits of all the others. None if there are no other audits."""
    folds = []
    for iteration, measurement in sorted(measured.items()):
        others = [cell for cell in audited if cell.iteration != iteration]
        estimated = estimate_accuracy(others, populations.get(iteration, {}), seed)
        if estimated is not None:
            folds.append(Fold(iteration, estimated, measurement))
    return Check(tuple(folds)) if folds else None


def chances(audited: Sequence[Cell], p_hats: Sequence[float]) -> list[float] | None:
    """The chance that a label with each of the p_hats (N,) is right, as `estimate_accuracy` fits it. None if there are
    no audits."""
    table = _Table.of(audited)
    if not table.n.sum():
        return None
    fitted = _fitted(table.p_hats, table.n.sum(axis=0), table.right.sum(axis=0), np.array(p_hats, dtype=np.float64))
    return [float(chance) for chance in fitted]


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """The audits of I iterations, counted by P ascending values of p_hat."""

    p_hats: Floats  # (P,)
    n: Floats  # (I, P)
    right: Floats  # (I, P)

    @classmethod
    def of(cls, audited: Sequence[Cell]) -> _Table:
        iterations = sorted({cell.iteration for cell in audited if cell.n})
        p_hats = sorted({cell.p_hat for cell in audited if cell.n})
        n, right = np.zeros((2, len(iterations), len(p_hats)))
        for cell in audited:
            if cell.n:
                indices = iterations.index(cell.iteration), p_hats.index(cell.p_hat)
                n[indices] += cell.n
                right[indices] += cell.right
        return cls(np.array(p_hats, dtype=np.float64), n, right)

    def resampled(self, generator: np.random.Generator) -> tuple[Floats, Floats]:
        """Bootstrap samples of the audits within each iteration, added up: `n` and `right`, both (draws, P)."""
        right = wrong = np.zeros((_DRAWS, self.p_hats.size))
        for counts in np.concatenate([self.right, self.n - self.right], axis=1):
            drawn = _resample(counts, generator)
            right, wrong = right + drawn[:, : self.p_hats.size], wrong + drawn[:, self.p_hats.size :]
        return right + wrong, right

    def mean_squared_error(self) -> float | None:
        """The mean square of estimated - measured over the audits of each iteration; None if there is only one."""
        if len(self.n) == 1:
            return None
        squares = []
        for n, right in zip(self.n, self.right, strict=True):
            other_n, other_right = self.n.sum(axis=0) - n, self.right.sum(axis=0) - right
            estimated = _predict(self.p_hats, other_n, other_right, self.p_hats, n)
            squares.append((estimated - right.sum() / n.sum()) ** 2)
        return float(np.mean(squares))


def _predict(audited_p_hats: Floats, n: Floats, right: Floats, p_hats: Floats, weights: Floats) -> float:
    """The chance of being right, fitted to `right` of `n` at the audited p_hats and averaged over weighted `p_hats`."""
    return float(np.average(_fitted(audited_p_hats, n, right, p_hats), weights=weights))


def _fitted(audited_p_hats: Floats, n: Floats, right: Floats, p_hats: Floats) -> Floats:
    """The chance of being right at each of `p_hats`, fitted to `right` of `n` at the audited p_hats."""
    from scipy.optimize import isotonic_regression  # slow to import, and few callers need it

    counted = n > 0
    fitted = isotonic_regression(right[counted] / n[counted], weights=n[counted]).x
    chance: Floats = np.interp(p_hats, audited_p_hats[counted], fitted)
    return chance


def _resample(counts: Floats, generator: np.random.Generator) -> Floats:
    """Bootstrap samples (draws, …) of the counts, each with the same total."""
    total = counts.sum()
    return generator.multinomial(int(total), counts / total, size=_DRAWS).astype(np.float64)
