"""The table of runs that `coevo status` prints."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from typing import Any

from rich.console import Console

from orchestrator.cli.services import _run_table
from services.views.states import RunState

NAME = "a-run-whose-name-is-longer-than-its-column"


def _printed(width: int, rows: list[dict[str, Any]]) -> str:
    state = RunState("interrupted", "nobody", datetime(2026, 11, 26, tzinfo=UTC))
    console = Console(width=width, file=StringIO(), record=True)
    console.print(_run_table(rows, {NAME: state}))
    return console.export_text()


def test_names_and_commands_can_be_copied_from_a_narrow_terminal() -> None:
    row = {"run": NAME, "preset": "demo", "reason": f"`coevo resume {NAME}` continues it"}
    printed = _printed(80, [row])
    assert printed
    assert "…" not in printed
    assert "remaining" not in printed  # nobody knows it of any run
    ranged = _printed(160, [{**row, "remaining": {"of_run": {"low": 60.0, "high": 120.0}}}])
    assert "remaining" in ranged
