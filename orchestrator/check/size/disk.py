"""How much of a disk a run takes, most of it checkpoints. Formulas, and no measurement: docs/sizing.md."""

from __future__ import annotations

from core.settings.config import RunConfig, SelfTraining
from core.settings.trainers import EasyR1Settings
from orchestrator.check.size.assumptions import GIB
from orchestrator.check.size.memory import Line
from orchestrator.check.size.shapes import shape_of

# Bytes a parameter. Both trainers keep their work in float32: the embedded one also publishes it so, while EasyR1's
# merger writes bfloat16.
_FLOAT32, _BFLOAT16, _MOMENTS = 4, 2, 8
_STEPS_KEPT = 3  # step folders on the disk while the newest is written, with either trainer
_BEST_KEPT = 3  # iterations: `orchestrator.disk.retention` has three meanings of the best one
_MOMENTS_KEPT = 3  # of rounds that are one training
OTHER_FILES = 2 * GIB  # of the database, the texts and the logs


def checkpoint_bytes(config: RunConfig) -> int:
    """The bytes of a published checkpoint that was trained. Raises `SizingError`."""
    return _published_width(config) * shape_of(config.base_model)[0].parameters


def _published_width(config: RunConfig) -> int:
    return _BFLOAT16 if isinstance(config.trainer, EasyR1Settings) else _FLOAT32


def _iterations_kept(config: RunConfig) -> int:
    """The most iterations whose checkpoints are on the disk at the same time, the one at work included."""
    keep = config.checkpoints.keep
    if keep == "all":
        return config.iterations
    every = config.iterations // keep if isinstance(keep, int) else 0
    return min(config.iterations, every + _BEST_KEPT + 2)


def disk_lines(config: RunConfig) -> tuple[Line, ...]:
    """What the disk has to hold for a run at its fullest, the work of the training in progress included.

    The last line, for what is small beside the checkpoints of real models, is an allowance and no sum. Raises
    `SizingError`.
    """
    parameters = shape_of(config.base_model)[0].parameters
    # A training on labelled data publishes a checkpoint of its own only if it is a branch.
    roles = [planned.table for planned in config.trainings if planned.table != "labelled" or config.has_branch]
    iterations = _iterations_kept(config)
    kept = f"(1 base + {len(roles)} x {iterations} iterations) x {_published_width(config)} P"
    size, at_work = checkpoint_bytes(config) * (1 + len(roles) * iterations), _FLOAT32 + _MOMENTS
    lines = [
        _line("checkpoints", f"{kept}; keep = {config.checkpoints.keep}", size),
        _line("the training at work", f"{_STEPS_KEPT} steps x {at_work} P", _STEPS_KEPT * at_work * parameters),
    ]
    if isinstance(config, SelfTraining) and config.rounds_are_one_training:
        how = f"{_MOMENTS_KEPT} rounds x {_MOMENTS} P"
        lines.append(_line("AdamW's moments of rounds", how, _MOMENTS_KEPT * _MOMENTS * parameters))
    return (*lines, _line("database, texts and logs", "an allowance", OTHER_FILES))


def disk_bytes(config: RunConfig) -> float:
    """The sum of `disk_lines` in bytes. Raises `SizingError`."""
    return GIB * sum(line.gib for line in disk_lines(config))


def _line(what: str, how: str, size: float) -> Line:
    return Line(what, how, size / GIB)
