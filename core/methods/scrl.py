"""SCRL (Yan et al., arXiv 2603.19880): positive labels under firm consensus, negative ones where that is safe."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from core.methods.base import Method, Signal
from core.settings.bounds import Factor, Share
from core.types import Group, Scored

# Shares are counts over N, thresholds are decimals: 0.5 - 0.4 > 0.1 in binary. Shares are 1/N apart, far above this.
TOLERANCE = 1e-9


class Scrl(Method):
    """SCRL (3.2 to 3.4, 4.1): a positive label only under firm consensus, negative ones for what is rare and unsure.

    The KL coefficient is the released script's; eq. 2 shows none. The cosine schedule of its learning rate is not here.
    """

    rollouts: ClassVar[int] = 64
    signals: ClassVar[frozenset[Signal]] = frozenset({"mean_entropy"})

    type: Literal["scrl"] = "scrl"
    variant: Literal["paper", "official"] = "paper"
    labels: Literal["online"] = "online"
    tau_pos: Share = 0.375
    tau_marg: Share = 0.125
    tau_neg: Share = 0.125
    entropy_weight: Factor = 0.1  # lambda_H
    kl_coefficient: Factor = 1e-3
    trained_share: float = Field(0.5, gt=0, le=1)

    def score(self, group: Group) -> Scored:
        """Rewards (G,) (eq. 4 to 9, algorithm 1), in [-tau_neg, 1] but for the entropy term.

        With p a class's share of all G rollouts, and H the mean over a class, or over the group, of the rollouts' mean
        token entropies under the policy that sampled them: y+ is the most frequent answer when `p >= tau_pos` and its
        lead over the second is `> tau_marg`, else nothing (eq. 4). N- are the answers with `p < tau_neg` and `H(a) >=
        H` (eq. 8), never y+. Then `R = p(a) [a = y+] + (p(a) - tau_neg) [a in N-] - lambda_H (H(a) - H)` (eq. 9).

        Rollouts without an answer count in G and are one class for the entropy term, never positive or negative: the
        paper does not say. `variant="official"` (Jasper-Yan/SCRL, reward_func): they get -1 whatever their entropy.

        `Scored.parts`: `positive_share` and `negative_share` of the rollouts, `abstained` (0 or 1).

        Raises:
            ValueError: no mean entropies (G,).
        """
        if group.mean_entropy is None or len(group.mean_entropy) != len(group.answers):
            raise ValueError(f"mean_entropy: expected one a rollout, {len(group.answers)}, for scrl")
        class_index = np.array([-1 if p is None else p for p in group.classes])
        share = np.array([votes for _, votes in group.vote.classes], dtype=np.float64) / len(class_index)
        gap = _class_means(group.mean_entropy, class_index) - group.mean_entropy.mean()  # H(a) - H, a rollout
        firm = len(share) > 0 and share[0] >= self.tau_pos - TOLERANCE
        firm = firm and share[0] - (share[1] if len(share) > 1 else 0.0) > self.tau_marg + TOLERANCE
        support = np.where(class_index >= 0, np.append(share, 0.0)[class_index], 0.0)  # p(a), a rollout
        positive = (class_index == 0) & firm
        negative = (class_index >= 0) & ~positive & (support < self.tau_neg - TOLERANCE) & (gap >= -TOLERANCE)
        rewards = support * positive + (support - self.tau_neg) * negative - self.entropy_weight * gap
        if self.variant == "official":
            rewards[class_index < 0] = -1.0
        parts = {
            "positive_share": float(positive.mean()),
            "negative_share": float(negative.mean()),
            "abstained": float(not firm),
        }
        negatives = tuple(group.vote.classes[i][0] for i in dict.fromkeys(class_index[negative].tolist()))
        return Scored(group.vote.answer if firm else None, rewards, parts=parts, negatives=negatives)


def _class_means(values: np.ndarray[tuple[int], np.dtype[np.float64]], class_index: np.ndarray) -> np.ndarray:
    """Each rollout's (G,) mean over its class."""
    _, of = np.unique(class_index, return_inverse=True)
    return (np.bincount(of, values) / np.bincount(of))[of]
