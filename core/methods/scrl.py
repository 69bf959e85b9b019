"""SCRL (Yan et al., arXiv 2603.19880): positive labels under firm consensus only, and negative labels."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from core.methods.base import Method, Signal
from core.settings.bounds import Factor, Share
from core.types import Group, Scored

# For comparing shares with thresholds, since 0.5 - 0.4 > 0.1 in binary. Shares are 1/N apart, which is far more.
TOLERANCE = 1e-9


class Scrl(Method):
    """SCRL (3.2 to 3.4, 4.1): a positive label only under firm consensus, negative ones for rare and unsure answers.

    The KL coefficient is that of the released script; eq. 2 has none.
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
        """Rewards (G,) (eq. 4 to 9, algorithm 1), in [-tau_neg, 1] apart from the entropy term.

        Let p(a) be the share of answer a's class among all G rollouts, H(a) the mean over that class of the rollouts'
        mean token entropies under the policy that sampled them, and H their mean over the group. The positive label y+
        is the most frequent answer if its `p >= tau_pos` and its lead over the second is `> tau_marg`; else there is
        none (eq. 4). The negative labels N- are the answers, other than y+, with `p < tau_neg` and `H(a) >= H` (eq. 8).
        Then `R = p(a) [a = y+] + (p(a) - tau_neg) [a in N-] - lambda_H (H(a) - H)` (eq. 9).

        Rollouts without an answer count in G, form one class for the entropy term, and are never positive or negative;
        the paper does not treat them. `variant="official"` (Jasper-Yan/SCRL, reward_func): they get -1, whatever their
        entropy.

        `Scored.parts`: `positive_share` and `negative_share` of the rollouts, `abstained` (0 or 1).

        Raises:
            ValueError: there is not one mean entropy per rollout.
        """
        if group.mean_entropy is None or len(group.mean_entropy) != len(group.answers):
            count = "none" if group.mean_entropy is None else len(group.mean_entropy)
            raise ValueError(f"mean_entropy: scrl needs one per rollout: expected {len(group.answers)}, got {count}")
        class_index = np.array([-1 if index is None else index for index in group.classes])
        share = np.array([votes for _, votes in group.vote.classes], dtype=np.float64) / len(class_index)
        gap = _class_means(group.mean_entropy, class_index) - group.mean_entropy.mean()  # H(a) - H, of each rollout
        firm = len(share) > 0 and share[0] >= self.tau_pos - TOLERANCE
        firm = firm and share[0] - (share[1] if len(share) > 1 else 0.0) > self.tau_marg + TOLERANCE
        support = np.where(class_index >= 0, np.append(share, 0.0)[class_index], 0.0)  # p(a), of each rollout
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
    """The mean of `values` over the class of each rollout (G,)."""
    _, positions = np.unique(class_index, return_inverse=True)
    return (np.bincount(positions, values) / np.bincount(positions))[positions]
