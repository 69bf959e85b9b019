"""Poly-EPO (Orney, Hamid et al., arXiv 2604.17654): rewards that sets share, for being right in many ways."""

from __future__ import annotations

from dataclasses import replace

from core.methods import PolyEpo
from core.rewards.agreement import agreement_scores
from core.strategies import DEGENERATE
from core.types import Group, Scored


def score(group: Group, method: PolyEpo) -> Scored:
    """Rewards (G,) in {0, 1}: agreement with the label, r of eq. 10. What sets make of them, and of the group's
    clusters, is the advantage: `core.sets.polychromic_advantages` (eq. 7, 8, 10, 11).

    A group whose clusters are unknown, since no judge could be understood, is dropped from the loss: the paper does not
    say. `Scored.parts`: `clusters`, how many strategies; `right_clusters`, among right rollouts (Figure 2);
    `degenerate_share`.
    """
    scored = agreement_scores(group, method.labels)
    if group.clusters is None:
        return replace(scored, learn=False)
    right = [c for c, reward in zip(group.clusters, scored.rewards, strict=True) if reward]
    parts = {
        "clusters": float(len({*group.clusters} - {DEGENERATE})),
        "right_clusters": float(len({*right} - {DEGENERATE})),
        "degenerate_share": group.clusters.count(DEGENERATE) / len(group.clusters),
    }
    return replace(scored, parts=parts)
