"""How many GPUs, how much memory, how many tokens and hours a preset takes: `coevo plan`, docs/sizing.md."""

from __future__ import annotations

from orchestrator.check.size.assumptions import Assumptions
from orchestrator.check.size.calculate import Plan, advice, calculate
from orchestrator.check.size.shapes import SizingError

__all__ = ["Assumptions", "Plan", "SizingError", "advice", "calculate"]
