"""Between audits: label accuracy as p_hat suggests it, from how often audited labels of the same p_hat were right.

This is an estimate and not a measurement. It assumes that a p_hat means in one iteration what it meant in the audited
ones; a Solver that grows sure of wrong answers breaks that, and only an audit shows it. So it comes with its own check:
each audited iteration estimated from the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.statistics.estimates import Z95, Estimate

_DRAWS = 200

Floats = NDArray[np.float64]
Population = Mapping[float, int]  # p_hat -> pseudo-labels


@dataclass(frozen=True, slots=True)
class Cell:
    """Of an iteration's pseudo-labels with this p_hat, `n` were audited and `right` of these are right."""

    iteration: int
    p_hat: float
    n: int
    right: int


@dataclass(frozen=True, slots=True)
class Fold:
    """An audited iteration, estimated from the other ones."""

    iteration: int
    estimated: Estimate
    measured: Estimate

    @property
    def held(self) -> bool:
        """Whether the estimate's interval holds the measured value."""
        return self.estimated.lo <= self.measured.value <= self.estimated.hi


@dataclass(frozen=True, slots=True)
class Check:
    """How far the estimates were from what was measured, iteration by iteration."""

    folds: tuple[Fold, ...]

    @property
    def error(self) -> float:
        """The mean of |estimated - measured|."""
        return float(np.mean([abs(fold.estimated.value - fold.measured.value) for fold in self.folds]))

    @property
    def bias(self) -> float:
        """The mean of estimated - measured: above 0 it promises too much."""
        return float(np.mean([fold.estimated.value - fold.measured.value for fold in self.folds]))

    @property
    def held(self) -> int:
        """Of how many folds the interval held the measured value."""
        return sum(fold.held for fold in self.folds)


def estimate_accuracy(audited: Sequence[Cell], population: Population, seed: int = 0) -> Estimate | None:
    """Label accuracy of a set with these p_hats, from audits of other iterations; `n` are these audits. None without
    any, or for an empty set.

    The chance that a label is right is fitted as a function of p_hat that never falls (isotonic least squares, linear
    between the p_hats that occur and level beyond them) and averaged over the set. The 95% interval is normal, within
    0..1. Its variance is that of the bootstrap (audits within each iteration, and the set itself, with a fixed seed),
    and the mean square by which each audited iteration is missed when estimated from the others: iterations differ by
    more than the luck of the draw. With one audited iteration nothing is known of that, and the interval is too
    narrow.
    """
    table = _Table.of(audited)
    weights = np.array([population[p_hat] for p_hat in sorted(population)], dtype=np.float64)
    if not table.n.sum() or not weights.sum():
        return None
    p_hats = np.array(sorted(population), dtype=np.float64)
    value = _predict(table.p_hats, table.n.sum(axis=0), table.right.sum(axis=0), p_hats, weights)
    generator = np.random.default_rng(seed)
    draws = [
        _predict(table.p_hats, n, right, p_hats, again)
        for n, right, again in zip(*table.resampled(generator), _again(weights, generator), strict=True)
    ]
    half = Z95 * float(np.sqrt(np.var(draws) + table.missed_by()))
    return Estimate(value, max(0.0, value - half), min(1.0, value + half), int(table.n.sum()))


def calibration_check(
    audited: Sequence[Cell], populations: Mapping[int, Population], measured: Mapping[int, Estimate], seed: int = 0
) -> Check | None:
    """Each iteration that was measured, estimated from the audits of all other ones. None where there is no other."""
    folds = []
    for iteration, figure in sorted(measured.items()):
        others = [cell for cell in audited if cell.iteration != iteration]
        estimated = estimate_accuracy(others, populations.get(iteration, {}), seed)
        if estimated is not None:
            folds.append(Fold(iteration, estimated, figure))
    return Check(tuple(folds)) if folds else None


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """Audits of I iterations by P values of p_hat, ascending."""

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
        """Over all iterations, as many audits of each as there are, drawn with replacement: twice (draws, P)."""
        right = wrong = np.zeros((_DRAWS, self.p_hats.size))
        for own in np.concatenate([self.right, self.n - self.right], axis=1):
            drawn = _again(own, generator)
            right, wrong = right + drawn[:, : self.p_hats.size], wrong + drawn[:, self.p_hats.size :]
        return right + wrong, right

    def missed_by(self) -> float:
        """The mean square of estimated - measured over the audits of each iteration; 0 for a single one."""
        if len(self.n) == 1:
            return 0.0
        squares = []
        for own, right in zip(self.n, self.right, strict=True):
            n, others = self.n.sum(axis=0) - own, self.right.sum(axis=0) - right
            squares.append((_predict(self.p_hats, n, others, self.p_hats, own) - right.sum() / own.sum()) ** 2)
        return float(np.mean(squares))


def _predict(known: Floats, n: Floats, right: Floats, p_hats: Floats, weights: Floats) -> float:
    """The chance of being right as fitted to `right` of `n` at the `known` p_hats, over a set of `p_hats`."""
    from scipy.optimize import isotonic_regression  # most who import this module estimate nothing, and it takes long

    seen = n > 0
    fitted = isotonic_regression(right[seen] / n[seen], weights=n[seen]).x
    return float(np.average(np.interp(p_hats, known[seen], fitted), weights=weights))


def _again(counts: Floats, generator: np.random.Generator) -> Floats:
    """(draws, …): as many, drawn with replacement."""
    total = counts.sum()
    return generator.multinomial(int(total), counts / total, size=_DRAWS).astype(np.float64)
