"""RENT (Prabhudesai et al., arXiv 2505.22660): rewards confidence only, as the negative entropy of tokens."""

from __future__ import annotations

from typing import ClassVar, Literal

from core.methods.base import LossAverage, Method, Signal
from core.types import Group, Scored
from core.validation.bounds import Factor


class Rent(Method):
    """RENT: the reward is the negative mean token entropy of a rollout, whatever its answer.

    The defaults are those of the released code (satrams/rent-rl: 5 rollouts, KL 0.001 in the loss, a mean over tokens).
    """

    rollouts: ClassVar[int] = 5
    signals: ClassVar[frozenset[Signal]] = frozenset({"mean_entropy"})

    type: Literal["rent"] = "rent"
    labels: Literal["none"] = "none"
    kl_coefficient: Factor = 1e-3
    loss_average: LossAverage = "token"

    def score(self, group: Group) -> Scored:
        """Rewards (G,), at most 0: `-H`, where H is the mean, over the tokens of a rollout, of the entropy of the
        distribution from which each was drawn. Answers do not matter, so there is no label, and no prompt is dropped.

        Raises:
            ValueError: there is not one mean entropy per rollout.
        """
        if group.mean_entropy is None or len(group.mean_entropy) != len(group.answers):
            count = "none" if group.mean_entropy is None else len(group.mean_entropy)
            raise ValueError(f"mean_entropy: rent needs one per rollout: expected {len(group.answers)}, got {count}")
        return Scored(None, -group.mean_entropy)
