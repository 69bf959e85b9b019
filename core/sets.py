"""Marginal set advantages: what a rollout is worth to the sets that hold it (Poly-EPO, arXiv 2604.17654, section 3).

For N rollouts, sets G of n and an objective f, with f' the mean of f over the sets:

    A(i) = mean over the sets G that hold i of  f(G) - f'        (eq. 7, 8)

Over all C(N, n) sets the mean has a closed form for both objectives here, since f is a sum of terms that depend on one
or two rollouts and on whether a set misses a cluster: no set is ever built, and N = 64, n = 8 (4.4 billion sets) costs
what N = 8 does. `K` sets sampled uniformly without replacement (Proposition B.1) are built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from core.strategies import DEGENERATE

_ROUNDING = 1e-12  # of means of terms of about 1

Floats = NDArray[np.float64]
Objective = Callable[[NDArray[np.bool_]], Floats]  # sets (K, N) as membership -> their scores (K,)


def polychromic_advantages(
    rewards: Floats, clusters: Sequence[int], size: int, sets: int | None = None, seed: int = 0
) -> Floats:
    """Advantages (N,) under `f(G) = mean reward of G * distinct clusters in G / n` (eq. 10, 11).

    Rollouts of cluster `DEGENERATE` count in the mean reward and in no cluster (A.1). `sets` is K, None for all; a
    rollout that is in none of the K gets 0.

    Raises:
        ValueError: `size` is not in 1..N, `sets` is not positive, or there is not one cluster a rollout.
    """
    _check(rewards, size, sets)
    if len(clusters) != len(rewards):
        raise ValueError(f"clusters: expected {len(rewards)}, one a rollout, got {len(clusters)}")
    found = np.array(clusters)
    member = found[:, None] == np.unique(found[found != DEGENERATE])[None, :]  # (N, C)

    def score(chosen: NDArray[np.bool_]) -> Floats:
        distinct: Floats = ((chosen.astype(np.float64) @ member) > 0).sum(1)
        scores: Floats = (chosen @ rewards) / size * distinct / size
        return scores

    if _is_all(len(rewards), size, sets):
        return _centred(_polychromic_means(rewards, member, size))
    return _sampled(score, len(rewards), size, sets or 0, seed)


def pass_at_n_advantages(rewards: Floats, size: int, sets: int | None = None, seed: int = 0) -> Floats:
    """Advantages (N,) under `f(G) = the greatest reward in G` (section 5.1). As `polychromic_advantages`."""
    _check(rewards, size, sets)

    def score(chosen: NDArray[np.bool_]) -> Floats:
        scores: Floats = np.where(chosen, rewards, -np.inf).max(1)
        return scores

    if _is_all(len(rewards), size, sets):
        return _centred(_greatest_means(rewards, size))
    return _sampled(score, len(rewards), size, sets or 0, seed)


def _polychromic_means(rewards: Floats, member: NDArray[np.bool_], size: int) -> Floats:
    """The mean of f over all sets that hold each rollout (N,).

    n² f(G) is the sum over j in G and over clusters c of r_j [G meets c]. Given that G holds u rollouts outside c, it
    misses c with probability q_u = C(N-u-|c|, n-u) / C(N-u, n-u); given that it holds i, it holds j with probability
    (n-1)/(N-1).
    """
    n, counts = len(rewards), member.sum(0)
    alone, paired = (np.array([_misses(n, int(c), size, u) for c in counts]) for u in (1, 2))
    outside = (~member).astype(np.float64)  # (N, C)
    own = rewards[:, None] * (1 - alone * outside)
    others = rewards.sum() - rewards
    others_outside = (rewards @ outside)[None, :] - rewards[:, None] * outside
    with_others = others[:, None] - paired * outside * others_outside
    beside = (size - 1) / (n - 1) if n > 1 else 0.0
    means: Floats = (own + beside * with_others).sum(1) / size**2
    return means


def _misses(n: int, cluster: int, size: int, held: int) -> float:
    """The chance that a set of `size` of `n`, of which it holds `held` outside a cluster, misses that cluster."""
    if size < held or n - held < size - held:
        return 0.0
    return comb(max(0, n - held - cluster), size - held) / comb(n - held, size - held)


def _greatest_means(rewards: Floats, size: int) -> Floats:
    """The mean greatest reward over all sets that hold each rollout (N,).

    In ascending order, a set that holds the p-th has its greatest at p when the others are all below, and at k > p when
    the n - 2 left are below k and not p.
    """
    n, order = len(rewards), np.argsort(rewards, kind="stable")
    total = comb(n - 1, size - 1)
    at_own = np.array([comb(p, size - 1) / total for p in range(n)])
    above = np.array([comb(k - 1, size - 2) / total if k and size > 1 else 0.0 for k in range(n)])
    climbing = (rewards[order] * above)[::-1].cumsum()[::-1]
    means = np.empty(n)
    means[order] = rewards[order] * at_own + np.append(climbing[1:], 0.0)
    return means


def _sampled(score: Objective, n: int, size: int, sets: int, seed: int) -> Floats:
    chosen = _sample_sets(n, size, sets, np.random.default_rng(seed))
    scores = score(chosen)
    if np.ptp(scores) <= _ROUNDING:
        return np.zeros(n)
    sums, held = (scores - scores.mean()) @ chosen, chosen.sum(0)
    advantages: Floats = np.divide(sums, held, out=np.zeros(n), where=held > 0)
    return advantages


def _sample_sets(n: int, size: int, sets: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """`sets` different sets as membership (K, N), uniform among all such choices."""
    if 2 * sets > comb(n, size):  # most of them: few enough to write down
        every = np.array(list(combinations(range(n), size)))
        return _membership(every[generator.choice(len(every), sets, replace=False)], n)
    chosen = np.zeros((0, n), dtype=np.bool_)
    while len(chosen) < sets:  # the first K different ones of independent draws
        drawn = generator.random((sets, n)).argpartition(size - 1, axis=1)[:, :size]
        chosen = np.concatenate([chosen, _membership(drawn, n)])
        _, first = np.unique(np.packbits(chosen, axis=1), axis=0, return_index=True)
        chosen = chosen[np.sort(first)]
    return chosen[:sets]


def _membership(indices: NDArray[np.int64], n: int) -> NDArray[np.bool_]:
    chosen = np.zeros((len(indices), n), dtype=np.bool_)
    np.put_along_axis(chosen, indices, True, axis=1)
    return chosen


def _is_all(n: int, size: int, sets: int | None) -> bool:
    return sets is None or sets >= comb(n, size)


def _centred(means: Floats) -> Floats:
    """Each set has n members, so the mean over rollouts of the mean over sets is the mean over all sets.

    Where nothing tells the rollouts apart they get exact zeros, and not what rounding leaves.
    """
    centred: Floats = means - means.mean()
    return centred if np.ptp(means) > _ROUNDING else np.zeros_like(means)


def _check(rewards: Floats, size: int, sets: int | None) -> None:
    if not 1 <= size <= len(rewards):
        raise ValueError(f"set_size: expected 1 to {len(rewards)}, the number of rollouts, got {size}")
    if sets is not None and sets < 1:
        raise ValueError(f"sets: expected at least 1, or None for all, got {sets}")
