"""Trainings: their steps, and the questions that they were given."""

from __future__ import annotations

from dataclasses import dataclass

from core.types import (
    Role,
)


@dataclass(frozen=True, slots=True)
class TrainMetric:
    """One figure of one optimiser step. `value` is None if it was not a number."""

    iteration: int
    role: Role
    step: int
    name: str
    value: float | None


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """What is stored of the rollouts of one step of a training: how many, and their rewards."""

    step: int
    prompts: int
    rollouts: int
    trained_on: int  # rollouts
    # Over the stored rollouts, without undecided ones; None if all are. That of the whole step is among the training
    # metrics.
    reward_mean: float | None
    reward_min: float | None
    reward_max: float | None


@dataclass(frozen=True, slots=True)
class TrainedOnRow:
    question_id: str
    checkpoint: str
    steps: list[int]
