"""Trainings: metrics of every step, and the stored rollouts with their advantages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from core.methods.base import Objective
from core.settings.trainers import LocalSettings
from core.settings.training import PlannedTraining, trained_rollouts
from core.types import CheckpointRole, Role, Stage, TrainingRollout
from orchestrator.verification.checks import Check, shown
from orchestrator.verification.subject import Subject
from storage import queries
from storage.queries.training_rollouts import Training

# Stage -> the role of its checkpoint, whose name is also that of its table in a preset; and the role that it trains.
TRAININGS: dict[Stage, tuple[CheckpointRole, Role]] = {
    "train_challenger": ("challenger", "challenger"),
    "train_solver": ("solver", "solver"),
    "train_labelled": ("labelled", "solver"),
}
_ALL = 1 << 31  # rollouts of a step: more than there are
_TOLERANCE = 1e-9  # of advantages, which are recomputed by the same code


@dataclass(frozen=True, slots=True)
class StageTraining:
    """A training stage that is done. Its steps are `first` to `last`, as the tables count them.

    If a training on labelled data is chained to the Solver's, `planned` has both.
    """

    iteration: int
    stage: Stage
    role: Role
    planned: tuple[PlannedTraining, ...]
    first: int
    last: int

    @property
    def name(self) -> str:
        return f"{self.stage} of iteration {self.iteration}"

    @property
    def steps(self) -> range:
        return range(self.first, self.last + 1)

    def planned_at(self, step: int) -> PlannedTraining:
        in_first = step - self.first < self.planned[0].training.steps
        return self.planned[0 if in_first else -1]


def trainings_of(subject: Subject) -> Iterator[StageTraining]:
    """The stages that have trained. The steps of a branch on labelled data continue those of its Solver."""
    planned = {training.table: training for training in subject.config.trainings}
    for stage, (table, role) in TRAININGS.items():
        for t, result in subject.done(stage):
            if "steps" not in result:  # a Challenger that is never trained
                continue
            before = subject.results[t, "train_solver"]["steps"] if stage == "train_labelled" else 0
            is_chained = table == "solver" and "labelled" in planned and not subject.config.has_branch
            own = (planned[table], planned["labelled"]) if is_chained else (planned[table],)
            yield StageTraining(t, stage, role, own, before + 1, before + result["steps"])


def training_metrics(check: Check, subject: Subject) -> None:
    """A training has metrics of each of its steps, which are as many as its result says."""
    has_branch = subject.config.has_branch
    for training in trainings_of(subject):
        with subject.store.read() as session:
            rows = queries.figures.train_metrics_of(
                session, subject.name, iteration=training.iteration, role=training.role
            )
        if has_branch:  # its metrics are told from the Solver's by their names, all but the number of the step
            of_labelled = training.stage == "train_labelled"
            rows = [row for row in rows if row.name != "step" and row.name.startswith("labelled_") == of_labelled]
        steps = {row.step for row in rows}
        check.expect(f"{training.name}: steps with metrics", [*training.steps], sorted(steps))


def training_rollouts(check: Check, subject: Subject) -> None:
    """The rollouts of a training are stored in whole groups, of as many prompts of each step as the run's setting says,
    with finite rewards.

    Advantages that follow from the rewards of the group alone are recomputed.
    """
    for training in trainings_of(subject):
        # A run that was created before there was the setting has stored none.
        most = subject.config.rollout_prompts if "rollout_prompts" in subject.run.config else 0
        key = Training(subject.name, training.iteration, training.role)
        with subject.store.read() as session:
            stored = [row.step for row in queries.training_rollouts.steps_of(session, key)]
        if subject.config.has_branch and training.role == "solver":
            of_labelled = training.stage == "train_labelled"
            stored = [step for step in stored if (step >= training.first if of_labelled else step <= training.last)]
        check.expect(f"{training.name}: steps with rollouts", [*training.steps] if most else [], stored)
        for step in training.steps if most else ():
            _step(check, subject, training, step, most)


def rollouts_at(subject: Subject, training: StageTraining, step: int) -> list[TrainingRollout]:
    """The stored rollouts of a step, by prompt and rollout."""
    key = Training(subject.name, training.iteration, training.role)
    with subject.store.read() as session:
        return queries.training_rollouts.list_rollouts(session, key, step=step, limit=_ALL)


def _step(check: Check, subject: Subject, training: StageTraining, step: int, most: int) -> None:
    planned, name = training.planned_at(step), f"{training.name}, step {step}"
    rows = rollouts_at(subject, training, step)
    groups = {prompt: [*group] for prompt, group in groupby(rows, key=lambda row: row.prompt)}
    check.expect(f"{name}: prompts with rollouts", min(most, planned.training.prompts_per_step), len(groups))
    for prompt, group in groups.items():
        row = f"{name}, prompt {prompt}"
        check.expect(f"{row}: rollouts", [*range(planned.rollouts)], [rollout.rollout for rollout in group])
        rewards = [rollout.reward for rollout in group]
        if not all(map(math.isfinite, rewards)):
            check.violate(f"{row}: rewards", "finite numbers", shown(rewards))
        elif isinstance(subject.config.trainer, LocalSettings) and len(group) == planned.rollouts:
            _advantages(check, row, planned.objective, rewards, [rollout.advantage for rollout in group])


def _advantages(
    check: Check, row: str, objective: Objective, rewards: Sequence[float], stored: Sequence[float | None]
) -> None:
    """Compare advantages with those of the rewards. A prompt that the method dropped has none.

    They cannot be recomputed if they depend on the KL or on strategies, which are not stored.
    """
    if objective.kl_in == "reward" or objective.advantage == "set" or not any(value is not None for value in stored):
        return
    trained = trained_rollouts(len(rewards), objective)
    expected = [*objective.advantages(np.array(rewards[:trained])).tolist(), *[None] * (len(rewards) - trained)]
    if not all(_close(a, b) for a, b in zip(expected, stored, strict=True)):
        check.violate(f"{row}: advantages", shown(expected), shown([*stored]))


def _close(a: float | None, b: float | None) -> bool:
    return a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE))
