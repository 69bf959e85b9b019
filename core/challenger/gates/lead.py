"""A firm majority (SCRL, Yan et al., arXiv 2603.19880, eq. 4): a bare one is no label."""

from __future__ import annotations

from typing import Literal

from core.challenger.gates.base import Candidate, Gate
from core.questions.filtering import is_firm
from core.validation.bounds import Share


class Lead(Gate):
    """Admits a question whose label has at least `share` of all votes, and leads the second answer by more than `lead`.

    Both are shares of all m votes, also with `denominator = "parsed"`. SCRL makes its labels in training; here they are
    the stored votes of S(t-1).
    """

    type: Literal["lead"] = "lead"
    share: Share = 0.375  # tau_pos
    lead: Share = 0.125  # tau_marg

    def admits(self, candidate: Candidate) -> bool:
        return is_firm(candidate.label, self.share, self.lead)
