"""SRT (Shafayat et al., arXiv 2505.21444), and RLOO (Ahmadian et al., arXiv 2402.14740), its estimator."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from core.methods.base import Advantage, Labels, LossAverage, Method
from core.types import Group, Scored
from core.validation.bounds import Factor


class Srt(Method):
    """SRT (eq. 6, 4, B.1): agreement with the group's own majority, or with labels made once (5.2).

    The rollouts that have an answer vote; a prompt without any answer is discarded with all its rollouts (section 4).
    The paper studies how this fails: a Solver that gives one answer to every prompt always earns 1 (4.1.1). B.1 sums
    the log-probabilities of a response's tokens, which is `max_length` up to a constant factor.

    Deviations from the released code (tajwarfahim/srt): it votes on the text of answers and lets math-verify decide
    which agree, so two spellings of one answer are two votes there; its threshold on the majority's share, 0 in the
    paper, is left out here; it averages the loss over tokens, where B.1 sums them; and it has an entropy bonus of 0.001
    and a dual clip at 3.
    """

    rollouts: ClassVar[int] = 32

    type: Literal["srt"] = "srt"
    labels: Labels = "online"
    advantage: Advantage = "rloo"
    kl_coefficient: Factor = 1e-3
    kl_in: ClassVar[Literal["loss", "reward"]] = "reward"
    loss_average: LossAverage = "max_length"


class SoftSrt(Srt):
    """SRT's soft reward, the share of the votes. It is in the released code and not in the paper."""

    type: Literal["soft_srt"] = "soft_srt"  # type: ignore[assignment]
    labels: Literal["online"] = "online"

    def score(self, group: Group) -> Scored:
        """Rewards (G,) in [0, 1] (tajwarfahim/srt, soft_reward=True): the votes for an answer divided by all votes,
        and 0 without an answer. A prompt without any answer is dropped from the loss."""
        votes = [0 if index is None else group.vote.classes[index][1] for index in group.classes]
        label = group.vote.answer
        return Scored(label, np.array(votes) / max(1, group.vote.parsed), learn=label is not None)


class Rloo(Method):
    """RLOO (SRT B.1) on the labels that come with the questions. With true labels it is SRT's control."""

    rollouts: ClassVar[int] = 32

    type: Literal["rloo"] = "rloo"
    advantage: Advantage = "rloo"
    kl_coefficient: Factor = 1e-3
    kl_in: ClassVar[Literal["loss", "reward"]] = "reward"
    loss_average: LossAverage = "max_length"
