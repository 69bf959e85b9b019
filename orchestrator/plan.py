"""The stages of a run, in order: what `flows.py` runs, and what a run needs to have done before it can end.

The order depends on the run's settings alone, so everybody can ask for it: the flow, the views of runs, `coevo check`
and `coevo store verify`. This file knows no stage's work; `stages/` has that.
"""

from __future__ import annotations

from collections.abc import Iterator

from core.settings.config import CoEvolution, RunConfig
from core.types import CheckpointRole, Role, Stage

# Each stage that trains: its checkpoint's role, whose name is that of its table in a preset too, and whom it trains.
TRAININGS: dict[Stage, tuple[CheckpointRole, Role]] = {
    "train_challenger": ("challenger", "challenger"),
    "train_solver": ("solver", "solver"),
    "train_labelled": ("labelled", "solver"),
}
_ALL: tuple[Stage, ...] = (
    "train_challenger",
    "generate_questions",
    "label_questions",
    "admit_questions",
    "train_solver",
    "train_labelled",
    "evaluate",
    "evaluate_labelled",
    "audit_labels",
    "check_health",
)
_BRANCH: tuple[Stage, ...] = ("train_labelled", "evaluate_labelled")
WITH_BRANCH = tuple(stage for stage in _ALL if stage != "admit_questions")
LOOP = tuple(stage for stage in WITH_BRANCH if stage not in _BRANCH)
_ROUND: tuple[Stage, ...] = ("train_solver", "evaluate", "check_health")
_VOTES_FIRST: tuple[Stage, ...] = ("read_prompts", "label_questions", "evaluate", "audit_labels")


def stages_of(config: RunConfig, iteration: int) -> tuple[Stage, ...]:
    """The stages of one iteration. Iteration 0 has the stages before the first iteration."""
    if isinstance(config, CoEvolution):
        if not iteration:
            return ("evaluate",)
        without: tuple[Stage, ...] = () if config.has_branch else _BRANCH
        without += () if config.gates else ("admit_questions",)
        return tuple(stage for stage in _ALL if stage not in without)
    if iteration:
        return _ROUND
    return _VOTES_FIRST if config.votes_before_training else ("read_prompts", "evaluate")


def plan(config: RunConfig, begins_at: int = 0) -> Iterator[tuple[int, Stage]]:
    """All stages of a run that is not stopped early, each with its iteration; of a fork, from its own first one on."""
    for iteration in range(begins_at, config.iterations + 1):
        for stage in stages_of(config, iteration):
            yield iteration, stage
