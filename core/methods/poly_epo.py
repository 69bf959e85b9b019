"""Poly-EPO (Orney, Hamid et al., arXiv 2604.17654): rewards that sets of rollouts share, and its baselines.

The marginal set advantage of a rollout is its value to the sets that contain it (section 3). For N rollouts, sets G of
n rollouts and an objective f, with f' the mean of f over the sets:

    A(i) = mean over the sets G that contain i of  f(G) - f'        (eq. 7, 8)

Over all C(N, n) sets, the mean has a closed form for both objectives here. The polychromic objective is a sum of terms
that depend on one or two rollouts and on whether a set misses a cluster; for the greatest reward, the sets are counted
in which a rollout is the greatest. So no set is built, even for N = 64, n = 8 (4.4 billion sets), and none has to be
sampled, as in Proposition B.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import comb
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from core.methods.base import Advantage, Floats, LossAverage, Method, Signal
from core.types import DEGENERATE, Group, Scored
from core.validation.bounds import Answers, Factor, Scale

_ROUNDING = 1e-12  # more than the rounding error of means of terms of about 1
_LAMBDA = 0.5  # of GRPO+DIV: the paper does not give it; this is the value of the example in 5.2


class SetMethod(Method):
    """An objective over all sets of so many rollouts (Poly-EPO 3, A)."""

    rollouts: ClassVar[int] = 8  # N

    advantage: Literal["set"] = "set"
    set_size: Answers = 4  # n
    clip_high: Scale = 0.28
    kl_coefficient: Factor = 0.0
    loss_average: LossAverage = "max_length"

    def check_group_size(self, rollouts: int) -> None:
        if self.set_size > rollouts:
            raise ValueError(
                f"reward.set_size: expected at most {rollouts}, the rollouts of a prompt that are trained on, "
                f"got {self.set_size}"
            )


class PolyEpo(SetMethod):
    """Poly-EPO (4, A): favours sets of rollouts that are right and have many strategies."""

    signals: ClassVar[frozenset[Signal]] = frozenset({"clusters"})

    type: Literal["poly_epo"] = "poly_epo"

    def score(self, group: Group) -> Scored:
        """Rewards (G,) in {0, 1}: agreement with the label, r of eq. 10. `polychromic_advantages` computes the
        advantages from them and the group's clusters (eq. 7, 8, 10, 11).

        A group whose clusters are unknown, because no reply of the judge could be understood, is dropped from the loss;
        the paper does not say what to do then.
        """
        scored = super().score(group)
        return replace(scored, learn=scored.learn and group.clusters is not None)

    def _estimate(self, rewards: Floats, clusters: Sequence[int] | None, _seed: int) -> Floats:
        if clusters is None:
            raise ValueError("clusters: poly_epo's advantages need them, got None")
        return polychromic_advantages(rewards, clusters, self.set_size)


class PassAtN(SetMethod):
    """The pass@n set objective (Poly-EPO 5.1): a set is worth its greatest reward. All else is as in Poly-EPO."""

    type: Literal["pass_at_n"] = "pass_at_n"

    def _estimate(self, rewards: Floats, _clusters: Sequence[int] | None, _seed: int) -> Floats:
        return pass_at_n_advantages(rewards, self.set_size)


class Grpo(Method):
    """GRPO as Poly-EPO's baseline (A): without the standard deviation; `advantage = "zscore"` is GRPO with it.

    With `loss_average = "max_length"` this is Dr. GRPO.
    """

    rollouts: ClassVar[int] = 8

    type: Literal["grpo"] = "grpo"
    advantage: Advantage = "mean"
    clip_high: Scale = 0.28
    kl_coefficient: Factor = 0.0


class GrpoDiv(Method):
    """GRPO+DIV (Poly-EPO eq. 17): the reward plus a bonus for being in a small cluster."""

    rollouts: ClassVar[int] = 8
    signals: ClassVar[frozenset[Signal]] = frozenset({"clusters"})

    type: Literal["grpo_div"] = "grpo_div"
    advantage: Advantage = "mean"
    clip_high: Scale = 0.28
    kl_coefficient: Factor = 0.0

    def score(self, group: Group) -> Scored:
        """Rewards (G,) in [0, 1 + lambda]: `r + lambda d`, with `d = (N / |cluster| - 1) / (N - 1)` (eq. 17).

        A degenerate rollout gets no bonus. The paper leaves its cluster out of a set's diversity and does not say what
        happens here; a bonus would reward a bare guess. A group whose clusters are unknown is dropped from the loss.
        """
        scored = super().score(group)
        if group.clusters is None:
            return replace(scored, learn=False)
        clusters, count = np.array(group.clusters), len(group.clusters)
        sizes = (clusters[:, None] == clusters[None, :]).sum(1)
        bonus = (count / sizes - 1) / max(1, count - 1) * (clusters != DEGENERATE)
        rewards, of_rollouts = scored.rewards + _LAMBDA * bonus, tuple({"bonus": float(d)} for d in bonus)
        return replace(scored, rewards=rewards, parts={"bonus": float(bonus.mean())}, rollout_parts=of_rollouts)


def polychromic_advantages(rewards: Floats, clusters: Sequence[int], size: int) -> Floats:
    """Advantages (N,) under `f(G) = mean reward of G * distinct clusters in G / n` (eq. 10, 11).

    Rollouts of cluster `DEGENERATE` count in the mean reward but not as a cluster (A.1). `size` is n.

    Raises:
        ValueError: `size` is not in 1..N, or there is not one cluster per rollout.
    """
    _check(rewards, size)
    if len(clusters) != len(rewards):
        raise ValueError(f"clusters: expected {len(rewards)}, one per rollout, got {len(clusters)}")
    strategies = np.array(clusters)
    member = strategies[:, None] == np.unique(strategies[strategies != DEGENERATE])[None, :]  # (N, C)
    return _centred(_polychromic_means(rewards, member, size))


def pass_at_n_advantages(rewards: Floats, size: int) -> Floats:
    """Advantages (N,) under `f(G) = the greatest reward in G` (section 5.1), like `polychromic_advantages`."""
    _check(rewards, size)
    return _centred(_greatest_means(rewards, size))


def _polychromic_means(rewards: Floats, member: NDArray[np.bool_], size: int) -> Floats:
    """The mean of f over all sets that contain a rollout, for each rollout (N,).

    n² f(G) is the sum over j in G and over clusters c of r_j [G meets c]. If G contains u given rollouts outside c, it
    misses c with probability q_u = C(N-u-|c|, n-u) / C(N-u, n-u). If G contains i, it contains j with probability
    (n-1)/(N-1).
    """
    n, counts = len(rewards), member.sum(0)
    alone, paired = (np.array([_chance_to_miss(n, int(c), size, u) for c in counts]) for u in (1, 2))
    outside = (~member).astype(np.float64)  # (N, C)
    own = rewards[:, None] * (1 - alone * outside)
    others = rewards.sum() - rewards
    others_outside = (rewards @ outside)[None, :] - rewards[:, None] * outside
    with_others = others[:, None] - paired * outside * others_outside
    chance_of_other = (size - 1) / (n - 1) if n > 1 else 0.0
    means: Floats = (own + chance_of_other * with_others).sum(1) / size**2
    return means


def _chance_to_miss(n: int, cluster: int, size: int, held: int) -> float:
    """The chance that a set of `size` of `n` rollouts misses a cluster, given that it contains `held` outside of it."""
    if size < held or n - held < size - held:
        return 0.0
    return comb(max(0, n - held - cluster), size - held) / comb(n - held, size - held)


def _greatest_means(rewards: Floats, size: int) -> Floats:
    """The mean greatest reward over all sets that contain a rollout, for each rollout (N,).

    Sort the rewards in ascending order. A set that contains the p-th has its greatest reward at p if all others are
    below p, and at k > p if its other n - 2 members are below k and different from p.
    """
    n, order = len(rewards), np.argsort(rewards, kind="stable")
    total = comb(n - 1, size - 1)
    at_own = np.array([comb(p, size - 1) / total for p in range(n)])
    above = np.array([comb(k - 1, size - 2) / total if k and size > 1 else 0.0 for k in range(n)])
    sums_above = (rewards[order] * above)[::-1].cumsum()[::-1]
    means = np.empty(n)
    means[order] = rewards[order] * at_own + np.append(sums_above[1:], 0.0)
    return means


def _centred(means: Floats) -> Floats:
    """Subtract the mean over all sets, which is the mean of `means`, because all sets have the same size.

    If the means are equal, the result is exact zeros instead of rounding errors.
    """
    centred: Floats = means - means.mean()
    return centred if np.ptp(means) > _ROUNDING else np.zeros_like(means)


def _check(rewards: Floats, size: int) -> None:
    if not 1 <= size <= len(rewards):
        raise ValueError(f"set_size: expected 1 to {len(rewards)}, the number of rollouts, got {size}")
