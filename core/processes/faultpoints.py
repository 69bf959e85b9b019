"""Named points in the code at which `tests/chaos` ends the process, to see that nothing is lost then.

Without `arm` a fault point does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

FaultPoint = Literal[
    "base model published",
    "run created",
    "run claimed",
    "stage claimed",
    "stage ready to end",
    "stage ended",
    "iteration ended",
    "run ended",
    "transaction complete",
    "transaction committed",
    "batch begun",
    "batch stored",
    "weights loaded",
    "training begun",
    "step begun",
    "weights written",
    "weights swapped",
    "step ended",
    "file written",
    "file renamed",
    "folder written",
    "folder renamed",
    "folder hidden",
    "checkpoint file copied",
    "checkpoint written",
    "checkpoint renamed",
]
FAULT_POINTS: tuple[FaultPoint, ...] = get_args(FaultPoint)

OnFaultPoint = Callable[[FaultPoint, str], None]

_actions: list[OnFaultPoint] = []  # at most one


def faultpoint(name: FaultPoint, unit: str = "") -> None:
    """Do what `arm` has set, nothing by default. `unit` names the work that begins or ends here, such as a batch."""
    for action in _actions:
        action(name, unit)


def arm(action: OnFaultPoint | None) -> None:
    """Have every fault point of this process call `action` with its name and unit; None makes them inert again."""
    _actions[:] = [] if action is None else [action]
