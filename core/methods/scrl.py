"""SCRL (Yan et al., arXiv 2603.19880): positive labels under firm consensus only, and negative labels."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from core.methods.base import Method, Signal
from core.questions.filtering import TOLERANCE, is_firm
from core.types import Group, Scored
from core.validation.bounds import Factor, Share


class Scrl(Method):
    """SCRL (3.2 to 3.4, 4.1): a positive label only under firm consensus, negative ones for rare and unsure answers.

    The KL coefficient is that of the released script; eq. 2 has none. The rows of Table 3 are `selective_positives`,
    `entropy_gate` and `dynamic_reward`, each false, and `tau_neg = 0`, with which no answer is rare enough.
    """

    rollouts: ClassVar[int] = 64
    signals: ClassVar[frozenset[Signal]] = frozenset({"mean_entropy"})

    type: Literal["scrl"] = "scrl"
    variant: Literal["paper", "official"] = "paper"
    labels: Literal["online"] = "online"
    selective_positives: bool = True  # false: the majority's answer always is the positive label
    entropy_gate: bool = True  # false: an answer is negative by its share alone
    dynamic_reward: bool = True  # false: 1, 0 and -1
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
        none (eq. 4). So a tie for the first place has no positive label, even with `tau_marg = 0`. Without
        `selective_positives`, y+ is the answer of the majority vote, which gives a tie to the smallest key.

        The negative labels N- are the answers, other than y+, with `p < tau_neg` and `H(a) >= H` (eq. 8). Without
        `entropy_gate`, the second condition is left out. `tau_neg = 0` leaves none, since no answer has `p < 0`.

        Then `R = p(a) [a = y+] + (p(a) - tau_neg) [a in N-] - lambda_H (H(a) - H)` (eq. 9); without `dynamic_reward`,
        `R = [a = y+] - [a in N-]` (5.1).

        The paper's reward is a function of a rollout's answer, and it does not say what a rollout without an answer
        earns. Here such rollouts count in G and in H, and they form one class for the entropy term. They are never
        positive or negative, and the term is cut off at 0: for their entropy they may lose, but never gain. Otherwise
        a text that repeats itself until it is cut off, which the model is sure of, would earn more than most answers.
        And they earn no more than the worst answer of the group, so that their advantage is never positive, even where
        the few answers earn less than 0. `variant="official"` (Jasper-Yan/SCRL, reward_func): they get -1, whatever
        their entropy.

        `Scored.parts`: `positive_share` and `negative_share` of the rollouts, `abstained` (0 or 1).

        Raises:
            ValueError: there is not one mean entropy per rollout.
        """
        if group.mean_entropy is None or len(group.mean_entropy) != len(group.answers):
            count = "none" if group.mean_entropy is None else len(group.mean_entropy)
            raise ValueError(f"mean_entropy: scrl needs one per rollout: expected {len(group.answers)}, got {count}")
        class_index = np.array([-1 if index is None else index for index in group.classes])
        share = np.array([votes for _, votes in group.vote.classes], dtype=np.float64) / len(class_index)
        _, position = np.unique(class_index, return_inverse=True)
        class_means = np.bincount(position, group.mean_entropy) / np.bincount(position)
        gap = class_means[position] - group.mean_entropy.mean()  # H(a) - H, of each rollout
        firm = is_firm(group.vote, self.tau_pos, self.tau_marg)
        has_label = len(share) > 0 and (firm or not self.selective_positives)
        support = np.where(class_index >= 0, np.append(share, 0.0)[class_index], 0.0)  # p(a), of each rollout
        positive = (class_index == 0) & has_label
        negative = (class_index >= 0) & ~positive & (support < self.tau_neg - TOLERANCE)
        if self.entropy_gate:
            negative &= gap >= -TOLERANCE
        rewards = positive.astype(np.float64) - negative
        if self.dynamic_reward:
            entropy_term = np.where(class_index >= 0, -gap, np.minimum(-gap, 0.0))
            rewards = support * positive + (support - self.tau_neg) * negative + self.entropy_weight * entropy_term
        unanswered = class_index < 0
        if self.variant == "official":
            rewards[unanswered] = -1.0
        elif not unanswered.all():
            rewards[unanswered] = np.minimum(rewards[unanswered], rewards[~unanswered].min())
        parts = {
            "positive_share": float(positive.mean()),
            "negative_share": float(negative.mean()),
            "abstained": float(not has_label),
        }
        negatives = tuple(group.vote.classes[i][0] for i in dict.fromkeys(class_index[negative].tolist()))
        return Scored(group.vote.answer if has_label else None, rewards, parts=parts, negatives=negatives)
