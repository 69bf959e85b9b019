"""The pass@n set objective (Poly-EPO, arXiv 2604.17654, section 5.1): a set is worth its best rollout."""

from __future__ import annotations

from core.methods import PassAtN
from core.rewards.agreement import agreement_scores
from core.types import Group, Scored


def score(group: Group, method: PassAtN) -> Scored:
    """Rewards (G,) in {0, 1}: agreement with the label; the advantage is `core.sets.pass_at_n_advantages`."""
    return agreement_scores(group, method.labels)
