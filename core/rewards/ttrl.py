"""TTRL (Zuo et al., arXiv 2504.16084) as EVOL-RL 3.1 and SCRL 4.1 run it: agreement with the group's own majority."""

from __future__ import annotations

from core.methods import Ttrl
from core.rewards.agreement import agreement_scores
from core.types import Group, Scored


def score(group: Group, method: Ttrl) -> Scored:
    """Rewards (G,) in {0, 1}: whether an answer is the majority's. All G vote; the trainer takes a part of them.

    Deviations from the released code (PRIME-RL/TTRL): ties go to the smallest key, not to the first seen; equality is
    `core.grading`'s; a group without any answer is dropped, where the release stops with an error.
    """
    return agreement_scores(group, method.labels)
