"""How many alerts there are, in words: those of an iteration, and those of a run that nobody has acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from sqlalchemy.orm import Session

from storage import queries
from storage.rows import Severity

_SEVERITIES: tuple[Severity, ...] = get_args(Severity)
_NAMES: dict[Severity, str] = {"warning": "warning", "critical": "critical alert"}


def counted(counts: Mapping[Severity, int]) -> str:
    """The numbers of alerts by severity, the worst first: "1 critical alert, 2 warnings". Empty if there are none."""
    numbers = [(counts.get(severity, 0), _NAMES[severity]) for severity in reversed(_SEVERITIES)]
    return ", ".join(f"{number:,} {name}{'' if number == 1 else 's'}" for number, name in numbers if number)


def open_alerts_of(session: Session, run: str) -> str | None:
    """A sentence about the run's open alerts and the command that lists them; None if it has none."""
    counts = queries.metrics.alert_counts(session, [run])
    text = counted({severity: counts.get((run, severity, False), 0) for severity in _SEVERITIES})
    return f"run {run} has open alerts: {text}; `coevo show alerts {run} --open` shows them" if text else None
