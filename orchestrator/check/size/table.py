"""A preset on 1 to 64 GPUs as a Markdown table."""

from __future__ import annotations

from core.settings.config import RunConfig
from core.types import Role
from orchestrator.check.size.assumptions import Assumptions
from orchestrator.check.size.calculate import Plan, calculate

COUNTS = (1, 2, 4, 8, 16, 32, 64)
_HEAD = (
    "GPUs",
    "fits",
    "trainer",
    "Solver",
    "Challenger",
    "`update_micro_batch`, `offload`",
    "fullest GPU, GiB",
    "hours an iteration",
    "hours the run",
)


def table(preset: str, config: RunConfig, assumed: Assumptions) -> str:
    """One row a number of GPUs, each with the layout that `coevo plan PRESET --gpus N` finds. Raises `SizingError`."""
    rows = [_HEAD, ("---",) * len(_HEAD), *(_row(calculate(preset, config, assumed, gpus)) for gpus in COUNTS)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(plan: Plan) -> tuple[str, ...]:
    trainer, fullest = plan.layout.trainer, max(plan.fullest.values())
    nodes = f" ({trainer.nodes} nodes)" if trainer.nodes > 1 else ""
    roles: tuple[Role, ...] = ("solver", "challenger")
    replicas = (f"{plan.layout.app(plan.config.application(role)).devices}" for role in roles)
    hours = (f"{low:.2f} to {high:.2f}" for low, high in (plan.hours, plan.run_hours))
    fits = "no" if plan.problems else "yes"
    memory = f"{trainer.micro_batch}, {str(trainer.offload).lower()}"
    return f"{plan.gpus}", fits, f"{trainer.gpus}{nodes}", *replicas, memory, f"{fullest:.1f}", *hours
