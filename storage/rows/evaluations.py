"""Evaluations of models on benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """What a model was asked. The manifest has all that the answers depend on. Times are in UTC."""

    id: str
    run: str | None  # that made it, in a stage or in `coevo show matrix`; None: `coevo evaluate` did
    checkpoint_id: str | None
    model: str  # a checkpoint's id, or the folder or URL of a model that is no run's
    benchmark: str
    manifest: Mapping[str, Any]
    seconds: float  # spent on it so far
    created_at: datetime
    finished_at: datetime | None
