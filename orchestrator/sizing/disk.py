"""How much of a disk a run's checkpoints take. Formulas, and no measurement: docs/sizing.md."""

from __future__ import annotations

from core.settings.config import RunConfig, SelfTraining
from core.settings.trainers import EasyR1Settings
from orchestrator.sizing.shapes import shape_of

# Bytes a parameter. Both trainers keep their work in float32: the embedded one also publishes it so, while EasyR1's
# merger writes bfloat16.
_FLOAT32, _BFLOAT16, _MOMENTS = 4, 2, 8
_STEPS_KEPT = 3  # step folders on the disk while the newest is written, with either trainer
_BEST_KEPT = 3  # iterations: `orchestrator.disk.retention` has three meanings of the best one
_MOMENTS_KEPT = 3  # of rounds that are one training


def checkpoint_bytes(config: RunConfig) -> int:
    """The bytes of a published checkpoint that was trained. Raises `SizingError`."""
    width = _BFLOAT16 if isinstance(config.trainer, EasyR1Settings) else _FLOAT32
    return width * shape_of(config.base_model)[0].parameters


def _iterations_kept(config: RunConfig) -> int:
    """The most iterations whose checkpoints are on the disk at the same time, the one at work included."""
    keep = config.checkpoints.keep
    if keep == "all":
        return config.iterations
    every = config.iterations // keep if isinstance(keep, int) else 0
    return min(config.iterations, every + _BEST_KEPT + 2)


def disk_bytes(config: RunConfig) -> int:
    """The bytes that all checkpoints of a run take at its fullest, the work of the training in progress included.

    Texts and the database are not counted; they are small beside the checkpoints of real models. Raises `SizingError`.
    """
    parameters = shape_of(config.base_model)[0].parameters
    # A training on labelled data publishes a checkpoint of its own only if it is a branch.
    roles = [planned.table for planned in config.trainings if planned.table != "labelled" or config.has_branch]
    published = 1 + _iterations_kept(config) * len(roles)
    work = _STEPS_KEPT * (_FLOAT32 + _MOMENTS) * parameters
    one_training = isinstance(config, SelfTraining) and config.rounds_are_one_training
    moments = _MOMENTS_KEPT * _MOMENTS * parameters if one_training else 0
    return published * checkpoint_bytes(config) + work + moments
