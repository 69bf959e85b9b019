"""EMPO (Zhang et al., arXiv 2504.05812): the reward of an answer is the share of rollouts that gave it."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from core.methods.base import Method
from core.types import Group, Scored
from core.validation.bounds import Factor


class Empo(Method):
    """EMPO: the reward is the share of rollouts that gave the same answer, so that semantic entropy falls.

    The defaults are those of the released recipe (QingyangZhang/EMPO, trl: 7 rollouts, no KL).
    """

    rollouts: ClassVar[int] = 7

    type: Literal["empo"] = "empo"
    labels: Literal["online"] = "online"
    kl_coefficient: Factor = 0.0

    def score(self, group: Group) -> Scored:
        """Rewards (G,) in [0, 1]: `|c| / G` for an answer of class c, 0 without an answer.

        Rollouts without an answer form one more class in the semantic entropy H. The released code learns from a prompt
        only if `H < log G`, that is, if at least two rollouts agree; it gives 0 to all rollouts of the other prompts.
        Here those prompts are dropped from the loss, and so are prompts without any answer.

        `Scored.parts`: `semantic_entropy`, in nats.
        """
        size = len(group.answers)
        sizes = [votes for _, votes in group.vote.classes]
        unanswered = size - sum(sizes)
        shares = np.array([*sizes, unanswered] if unanswered else sizes) / size
        rewards = np.array([0.0 if index is None else sizes[index] / size for index in group.classes])
        parts = {"semantic_entropy": float(-(shares * np.log(shares)).sum())}
        learn = bool(sizes) and len(shares) < max(2, size)
        return Scored(group.vote.answer if learn else None, rewards, learn=learn, parts=parts)
