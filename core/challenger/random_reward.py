"""A control: rewards that are drawn at random (as Spurious Rewards, arXiv 2506.10947, does for the Solver)."""

from __future__ import annotations

import random
from typing import Literal

from core.challenger.base import Asked, ChallengerReward
from core.types import Score


class RandomChallenger(ChallengerReward):
    """A number of [0, 1), drawn evenly, for each well-formed rollout; 0 for a malformed one."""

    type: Literal["random"] = "random"

    def scores(self, asked: Asked) -> list[Score]:
        rng, scores = random.Random(asked.seed), list[Score]()
        for label in asked.labels:
            drawn = rng.random()
            parts = {"p_hat": label.p_hat if label else 0.0, "malformed": float(label is None)}
            scores.append(Score(drawn if label else 0.0, parts))
        return scores
