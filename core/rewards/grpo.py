"""GRPO (DeepSeekMath, arXiv 2402.03300) as Poly-EPO's baseline (appendix A): agreement with a label."""

from __future__ import annotations

from core.methods import Grpo
from core.rewards.agreement import agreement_scores
from core.types import Group, Scored


def score(group: Group, method: Grpo) -> Scored:
    """Rewards (G,) in {0, 1}; `method.advantage` says whether the standard deviation divides them."""
    return agreement_scores(group, method.labels)
