"""Exact validity (Pu et al., arXiv 2605.22217): only questions that have an answer, or almost only these."""

from __future__ import annotations

import random
from typing import Literal

from core.challenger.gates.base import Candidate, Gate
from core.validation.bounds import Share
from core.worlds import solve


class Valid(Gate):
    """Admits a question with F_e = 1 if it is valid, and F_e ~ Bernoulli(e) otherwise; e is `leak`.

    A question is valid if a program knows its answer, so in the tiny worlds only. It says nothing about the label.
    """

    type: Literal["valid"] = "valid"
    leak: Share = 0.0

    def admits(self, candidate: Candidate) -> bool:
        return solve(candidate.question) is not None or random.Random(candidate.seed).random() < self.leak
