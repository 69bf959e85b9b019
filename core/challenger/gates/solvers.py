"""Other Solvers must give the same answer: samples of one model agree on a fault that it always makes.

Lee et al. (arXiv 2502.01612) keep a self-made label if most of several models, trained with other seeds, agree on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import model_validator

from core.challenger.gates.agreement import agreements
from core.challenger.gates.base import Admission, Candidate, Gate, Known, Need
from core.grading.grader import process_grader
from core.validation.bounds import Answers, Positive


class Solvers(Gate):
    """Admits a question if at least `agree` other Solvers vote for its label, or all if there are fewer.

    The others are those that the voting Solver was trained from: S(t-2), S(t-3), …, as many as `earlier` says, down to
    the base model. In the first iteration there is none, and every question is admitted.
    """

    needs: ClassVar[Need] = "other_solvers"

    type: Literal["solvers"] = "solvers"
    earlier: Positive = 2
    votes: Answers = 10  # of each Solver on each question
    agree: Positive = 1

    def admit(self, candidates: Sequence[Candidate], known: Known) -> Admission:
        agreeing = agreements(candidates, process_grader())
        verdicts = [verdict for of_solvers in agreeing for verdict in of_solvers]
        return Admission.of(
            (of_solvers.count("equal") >= min(self.agree, len(of_solvers)) for of_solvers in agreeing),
            known.state,
            agreeing=verdicts.count("equal") / len(verdicts) if verdicts else None,
            undecided=verdicts.count("unknown"),
        )

    @model_validator(mode="after")
    def _enough_solvers(self) -> Solvers:
        if self.agree > self.earlier:
            raise ValueError(f"agree: expected at most earlier = {self.earlier}, got {self.agree}")
        return self
