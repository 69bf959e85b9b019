"""GRPO+DIV (Poly-EPO, arXiv 2604.17654, eq. 17): agreement plus a bonus for a strategy that few share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from core.methods import GrpoDiv
from core.rewards.agreement import agreement_scores
from core.strategies import DEGENERATE
from core.types import Group, Scored


def score(group: Group, method: GrpoDiv) -> Scored:
    """Rewards (G,) in [0, 1 + lambda]: `r + lambda d`, with `d = (N / |cluster| - 1) / (N - 1)` (eq. 17).

    A degenerate rollout gets no bonus: the paper leaves its cluster out of a set's diversity and says nothing here, and
    a bonus would pay for a bare guess. A group whose clusters are unknown is dropped from the loss.
    """
    scored = agreement_scores(group, method.labels)
    if group.clusters is None:
        return replace(scored, learn=False)
    clusters, count = np.array(group.clusters), len(group.clusters)
    sizes = (clusters[:, None] == clusters[None, :]).sum(1)
    bonus = (count / sizes - 1) / max(1, count - 1) * (clusters != DEGENERATE)
    parts = {"bonus": float(bonus.mean()), "clusters": float(len({*group.clusters} - {DEGENERATE}))}
    return replace(scored, rewards=scored.rewards + method.diversity_weight * bonus, parts=parts)
