"""A control: rewards that are drawn at random (Spurious Rewards, Shao et al., arXiv 2506.10947)."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from core.methods.base import Method
from core.types import Group, Scored
from core.validation.bounds import Share


class RandomReward(Method):
    """1 with a probability, else 0, whatever a rollout says. What a loop gains with it, it owes to no label.

    The seed of the group and the position of a rollout in it decide, so a resumed training draws the same.
    """

    rollouts: ClassVar[int] = 5  # R-Zero's, with which it is compared

    type: Literal["random"] = "random"
    labels: Literal["none"] = "none"
    probability: Share = 0.5  # gamma

    def score(self, group: Group) -> Scored:
        """Rewards (G,) in {0, 1}. No prompt is dropped."""
        drawn = np.random.default_rng(group.seed).random(len(group.answers)) < self.probability
        return Scored(None, drawn.astype(np.float64))
