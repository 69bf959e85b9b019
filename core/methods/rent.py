"""RENT (Prabhudesai et al., arXiv 2505.22660): confidence alone, the negative entropy of a rollout's tokens."""

from __future__ import annotations

from typing import ClassVar, Literal

from core.methods.base import LossAverage, Method, Signal
from core.settings.bounds import Factor
from core.types import Group, Scored


class Rent(Method):
    """RENT: the negative mean token entropy of a rollout, whatever its answer.

    The numbers are the released code's (satrams/rent-rl: 5 rollouts, KL 0.001 in the loss, a mean over tokens).
    """

    rollouts: ClassVar[int] = 5
    signals: ClassVar[frozenset[Signal]] = frozenset({"mean_entropy"})

    type: Literal["rent"] = "rent"
    labels: Literal["none"] = "none"
    kl_coefficient: Factor = 1e-3
    loss_average: LossAverage = "token"

    def score(self, group: Group) -> Scored:
        """Rewards (G,), at most 0: `-H`, the mean over a rollout's tokens of the entropy of the distribution that they
        were drawn from. The reward ignores the answer, so there is no label, and no prompt is dropped.

        Raises:
            ValueError: no mean entropies (G,).
        """
        if group.mean_entropy is None or len(group.mean_entropy) != len(group.answers):
            raise ValueError(f"mean_entropy: expected one a rollout, {len(group.answers)}, for rent")
        return Scored(None, -group.mean_entropy)
