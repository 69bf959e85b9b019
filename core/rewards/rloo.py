"""RLOO (Ahmadian et al., arXiv 2402.14740; SRT B.1) on labels that come with the questions."""

from __future__ import annotations

from core.methods import Rloo
from core.rewards.agreement import agreement_scores
from core.types import Group, Scored


def score(group: Group, method: Rloo) -> Scored:
    """Rewards (G,) in {0, 1}: agreement with the label."""
    return agreement_scores(group, method.labels)
