"""Plans for the tests of `coevo plan`'s calculator."""

from __future__ import annotations

from core.settings.parsing import load_config
from orchestrator.check.presets import preset_path
from orchestrator.check.size import Assumptions, Plan, calculate


def plan_of(preset: str, gpus: int | None = None, **overrides: object) -> Plan:
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return calculate(preset, load_config(preset_path(preset), named), Assumptions(), gpus)
