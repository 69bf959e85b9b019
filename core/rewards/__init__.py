"""The Solver's rewards by the name that a preset's `solver.reward.type` gives them: one file a paper, one line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.rewards import rzero
from core.types import Score

SolverScores = Callable[[Sequence[str | None], str, Callable[[str, str], bool]], list[Score]]

SOLVER_REWARDS: dict[str, SolverScores] = {
    "rzero": rzero.solver_scores,
}
