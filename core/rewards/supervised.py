"""R-Zero's GRPO on true labels (arXiv 2508.05004, B.3)."""

from __future__ import annotations

from core.methods import Supervised
from core.rewards.agreement import agreement_scores
from core.types import Group, Scored


def score(group: Group, method: Supervised) -> Scored:
    """Rewards (G,) in {0, 1}: agreement with the true label."""
    return agreement_scores(group, method.labels)
