"""A language model must call the label right."""

from __future__ import annotations

from typing import ClassVar, Literal

from core.asking.judge import Judge
from core.challenger.gates.base import Candidate, Gate, Need


class JudgeGate(Judge, Gate):
    """Admits a question if the judge calls its label right. It has the settings of `[audit.judge]`.

    The judge is asked as for an audit (docs/audits.md), except that it is asked about each candidate, and that a run
    whose judge cannot be asked ends with an error. What it says is no audit and no part of label accuracy; an audit by
    the same judge would measure the gate by itself.
    """

    needs: ClassVar[Need] = "judge"

    type: Literal["judge"] = "judge"
    prompt: Literal["annotate"] = "annotate"  # the other one shows a true answer, which these questions do not have

    def admits(self, candidate: Candidate) -> bool:
        return [row.answers for row in candidate.evidence] == [("right",)]
