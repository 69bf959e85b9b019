"""Scoring a group by a method, without training: its rewards, and the advantages that follow from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.methods import Method
from core.types import Group, Scored


@dataclass(frozen=True, slots=True, eq=False)
class ScoredGroup:
    """The rewards, and the advantages (G,) over the whole group; these are 0 if the prompt is dropped from the loss."""

    scored: Scored
    advantages: NDArray[np.float64]


def outcome(group: Group, method: Method) -> ScoredGroup:
    """Score one group, with its own seed. `trained_share` and the KL do not enter, since only the trainer applies them.

    Raises:
        ValueError: a signal that the method needs is missing, or its sets are larger than the group.
    """
    scored = method.score(group)
    if not scored.learn:
        return ScoredGroup(scored, np.zeros(len(group.answers)))
    return ScoredGroup(scored, method.advantages(scored.rewards, group.clusters, group.seed))
