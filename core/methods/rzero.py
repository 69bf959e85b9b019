"""R-Zero (Huang et al., arXiv 2508.05004): the Solver's reward, and its baseline on true labels."""

from __future__ import annotations

from typing import ClassVar, Literal

from core.methods.base import Method


class RZero(Method):
    """R-Zero 2.4: agreement with the label that the Solver of the previous iteration voted for.

    The stage `label_questions` makes the label once, with S(t-1). A rollout without an answer gets 0.
    """

    rollouts: ClassVar[int] = 5

    type: Literal["rzero"] = "rzero"
    labels: Literal["offline"] = "offline"


class Supervised(Method):
    """R-Zero's GRPO on true labels (B.3): the reward is agreement with them."""

    rollouts: ClassVar[int] = 5

    type: Literal["supervised"] = "supervised"
    labels: Literal["offline"] = "offline"
