"""R-Zero's reward with its peak at another share of agreeing votes than one half."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from core.challenger.rzero import RZeroChallenger
from core.validation.bounds import Share


class TargetChallenger(RZeroChallenger):
    """`max(0, max(0, 1 - |p_hat - peak| / width) - lambda |C_k|/B)`; range [0, 1].

    R-Zero's has its peak at 1/2 and the width 1/2. Where the Solver agrees with itself more often, its labels are right
    more often, so a higher peak asks for easier questions with better labels. This is of no paper.
    """

    variant: ClassVar[Literal["paper"]] = "paper"  # type: ignore[misc]

    type: Literal["target"] = "target"  # type: ignore[assignment]
    peak: Share = 0.7
    width: float = Field(0.5, gt=0, le=1)  # from the peak to where the reward is 0

    def uncertainty(self, p_hat: float) -> float:
        return max(0.0, 1 - abs(p_hat - self.peak) / self.width)
