"""What a campaign has done, and what it has seen."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from core.processes.faultpoints import FAULT_POINTS, FaultPoint
from tests.chaos.victims import Victim


@dataclass
class Outcome:
    """Counts and violations of the kills so far."""

    kills: int = 0
    runs: int = 0
    by_victim: Counter[Victim] = field(default_factory=Counter)
    killed_at: Counter[FaultPoint] = field(default_factory=Counter)  # the run's own process
    redone: list[int] = field(default_factory=list)  # units of work that were done again, by attempt
    resumed: list[float] = field(default_factory=list)  # seconds until a resumed run did something new
    violations: list[str] = field(default_factory=list)

    def count(self, victim: Victim, at: FaultPoint | None = None) -> None:
        self.kills += 1
        self.by_victim[victim] += 1
        if at is not None:
            self.killed_at[at] += 1

    def violated(self, sentence: str) -> None:
        self.violations.append(f"run {self.runs + 1}: {sentence}")

    def as_json(self) -> dict[str, Any]:
        return {
            "kills": self.kills,
            "runs": self.runs,
            "by_victim": dict(self.by_victim),
            "violations": self.violations,
            "max_redone_batches": max(self.redone, default=0),
            "median_resume_s": round(statistics.median(self.resumed), 2) if self.resumed else None,
            "slowest_resume_s": round(max(self.resumed), 2) if self.resumed else None,
            "killed_at": {name: self.killed_at[name] for name in FAULT_POINTS},
            "not_killed_at": [name for name in FAULT_POINTS if not self.killed_at[name]],
        }
