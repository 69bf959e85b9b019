"""A method's word on a group, whole: rewards and what they come to as advantages, without training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.methods import Method
from core.types import Group, Scored


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Rewards, and advantages (G,) over all of the group; zeros where the prompt is dropped from the loss."""

    scored: Scored
    advantages: NDArray[np.float64]


def outcome(group: Group, method: Method, seed: int = 0) -> Outcome:
    """Score one group. `trained_share` and the KL are the trainer's, and have no part in it.

    Raises:
        ValueError: a signal that the method needs is missing, or its sets do not fit the group.
    """
    scored = method.score(group)
    if not scored.learn:
        return Outcome(scored, np.zeros(len(group.answers)))
    return Outcome(scored, method.advantages(scored.rewards, group.clusters, seed))
