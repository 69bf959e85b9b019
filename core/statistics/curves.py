"""Figures by k, the number of answers to a question that are taken together: pass@k, maj@k and the majority's share.

All are estimated from n >= k stored answers to each question, as the mean over all sets of k of these answers. So no
set is drawn, and the figures do not depend on a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

from core.statistics.estimates import Estimate, mean_share


@dataclass(frozen=True, slots=True)
class Tally:
    """The answers to one question: for each class of equal answers its size and whether it is right.

    `blank` counts the replies without an answer. They are no class, because they do not vote.
    """

    classes: tuple[tuple[int, bool], ...]
    blank: int

    @property
    def n(self) -> int:
        return sum(size for size, _ in self.classes) + self.blank

    @property
    def right(self) -> int:
        return sum(size for size, right in self.classes if right)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The figures at one k. Each n counts questions."""

    k: int
    pass_at_k: Estimate
    maj_at_k: Estimate
    share_at_k: Estimate  # of the k answers that the majority has


def pass_at_k(n: int, right: int, k: int) -> float:
    """The probability that at least one of k answers, drawn without replacement from n, is among the `right` ones.

    It is the unbiased estimator of Chen et al. 2021 (arXiv 2107.03374, eq. 1): 1 - C(n - right, k) / C(n, k).

    Raises:
        ValueError: not 0 <= right <= n, or not 1 <= k <= n.
    """
    _check(n, k)
    if not 0 <= right <= n:
        raise ValueError(f"right: expected 0..{n}, got {right}")
    return 1 - comb(n - right, k) / comb(n, k)


def majority_at_k(tally: Tally, k: int) -> float:
    """The probability that the majority of k answers, drawn without replacement, is right.

    In a tie each of the largest classes wins with the same probability. A set without any answer is wrong.

    Raises:
        ValueError: not 1 <= k <= n.
    """
    _check(tally.n, k)
    return _majority_at_k(Tally(tuple(sorted(tally.classes)), tally.blank), k)


def majority_share_at_k(tally: Tally, k: int) -> float:
    """The mean share that the largest class has of k answers, drawn without replacement (Poly-EPO, Figure 4, below).

    Replies without an answer count in k, as in p_hat.

    Raises:
        ValueError: not 1 <= k <= n.
    """
    _check(tally.n, k)
    return float(_largest_classes(tuple(sorted(size for size, _ in tally.classes)), tally.blank)[k]) / k


def curve(tallies: Sequence[Tally]) -> list[CurvePoint]:
    """The figures for k = 1, 2, 4, … up to the smallest number of answers to a question, and for that number.

    Empty without questions, or if a question has no replies. The intervals are those of the mean over the questions.
    """
    most = min((tally.n for tally in tallies), default=0)
    points = list[CurvePoint]()
    for k in sorted({most, *(2**i for i in range(most.bit_length()))} - {0} if most else ()):
        passed = mean_share([pass_at_k(tally.n, tally.right, k) for tally in tallies])
        voted = mean_share([majority_at_k(tally, k) for tally in tallies])
        largest = mean_share([majority_share_at_k(tally, k) for tally in tallies])
        if passed and voted and largest:
            points.append(CurvePoint(k, passed, voted, largest))
    return points


def _check(n: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k: expected 1..{n}, the number of answers, got {k}")


@lru_cache(maxsize=65_536)  # many questions have the same tally, and those of a class that wins always or never most
def _majority_at_k(tally: Tally, k: int) -> float:
    total = 0.0
    for index, (size, right) in enumerate(tally.classes):
        if right:
            others = [other for i, (other, _) in enumerate(tally.classes) if i != index]
            for votes in range(1, min(size, k) + 1):
                total += comb(size, votes) * _sets_won(others, tally.blank, votes, k - votes)
    return min(1.0, total / comb(tally.n, k))


def _sets_won(others: Sequence[int], blank: int, votes: int, rest: int) -> float:
    """The number of ways to draw `rest` answers from the other classes and the blank ones so that a class with `votes`
    votes wins. A way in which t others have as many votes counts 1 / (t + 1)."""
    # ways[t, m]: to draw m answers from the classes so far, t of which have as many votes
    most_ties = min(len(others), rest // votes)
    ways: NDArray[np.float64] = np.zeros((most_ties + 1, rest + 1))
    ways[0, 0] = 1
    for size in others:
        before, ways = ways, ways.copy()
        for drawn in range(1, min(size, votes, rest) + 1):
            new = comb(size, drawn) * before[:, : rest + 1 - drawn]
            if drawn == votes:
                ways[1:, drawn:] += new[:-1]
            else:
                ways[:, drawn:] += new
    blanks = np.array([comb(blank, rest - drawn) for drawn in range(rest + 1)], dtype=np.float64)
    return float((ways @ blanks / np.arange(1, most_ties + 2)).sum())


@lru_cache(maxsize=4_096)  # 8 KB each, if a question has the most answers that it can have
def _largest_classes(sizes: tuple[int, ...], blank: int) -> NDArray[np.float64]:
    """(n + 1,) The mean size of the largest class in k answers, for k = 0, 1, …, n.

    It is the sum over v of P(the class is larger than v).
    """
    n = sum(sizes) + blank
    sets = _subsets(n)
    means = np.zeros(n + 1)
    for most in range(max(sizes, default=0)):
        # No class has more than `most` of the answers. Those that are not larger can be drawn in any way.
        ways = _subsets(blank + sum(size for size in sizes if size <= most))
        for size in (size for size in sizes if size > most):
            ways = np.convolve(ways, _subsets(size)[: most + 1])
        means += 1 - np.pad(ways, (0, n + 1 - len(ways))) / sets
    return means


@lru_cache(maxsize=2_048)
def _subsets(size: int) -> NDArray[np.float64]:
    """(size + 1,) The number of ways to draw j of `size` answers, for j = 0, 1, …, `size`."""
    return np.array([comb(size, j) for j in range(size + 1)], dtype=np.float64)
