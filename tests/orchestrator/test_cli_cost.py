"""`coevo show cost` prints no amount that somebody paid as 0."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from orchestrator.cli.cost import _table
from services.views.costs import NOTHING, Cost, RunCosts


def test_a_fraction_of_a_cent_is_not_shown_as_nothing() -> None:
    paid = {"evaluate": 0.004, "train_solver": 1234.5}
    rows = [
        Cost(1, "evaluate", "stage", replace(NOTHING, seconds=1.0, money=paid["evaluate"])),
        Cost(1, "train_solver", "stage", replace(NOTHING, seconds=1.0, money=paid["train_solver"])),
        Cost(1, "check_health", "stage", replace(NOTHING, seconds=1.0)),
    ]
    total = sum((row.amounts for row in rows), NOTHING)
    console = Console(width=100)
    with console.capture() as printed:
        console.print(_table(RunCosts("USD", rows, total, None, NOTHING, 0, [])))
    by_stage = {line.split()[0]: line.split()[-1] for line in printed.get().splitlines() if line.strip("─ ")}
    assert (by_stage["evaluate"], by_stage["train_solver"], by_stage["check_health"]) == ("<0.01", "1,234.50", "s")
