"""TTRL (Zuo et al., arXiv 2504.16084), which EVOL-RL and SCRL compare themselves with."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from core.methods.base import Method
from core.validation.bounds import Factor


class Ttrl(Method):
    """TTRL, as EVOL-RL (3.1, A.4) and SCRL (4.1) run it: agreement with the majority of 64 votes; 32 are trained on.

    Deviations from the released code (PRIME-RL/TTRL): ties go to the smallest key, not to the first seen;
    `core.grading.grader` decides which answers are equal; a group without any answer is dropped, where the release
    stops with an error.
    """

    rollouts: ClassVar[int] = 64

    type: Literal["ttrl"] = "ttrl"
    labels: Literal["online"] = "online"
    kl_coefficient: Factor = 1e-3
    trained_share: float = Field(0.5, gt=0, le=1)
