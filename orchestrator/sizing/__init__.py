"""How many GPUs, how much memory, how many tokens and hours a preset takes: `coevo plan`, docs/sizing.md."""

from __future__ import annotations

from orchestrator.sizing.assumptions import Assumptions
from orchestrator.sizing.calculate import Plan, advice, calculate
from orchestrator.sizing.shapes import SizingError

__all__ = ["Assumptions", "Plan", "SizingError", "advice", "calculate"]
