"""What commands print as tables: `coevo status`, `coevo show cost`, and the tags and notes of `coevo runs list`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from core.settings.config import CoEvolution
from orchestrator.cli.cost import _table
from orchestrator.cli.services import _run_table
from orchestrator.cli.terminal import print_progress
from services.api.app import create_app
from services.views.costs import NOTHING, Cost, RunCosts
from services.views.states import RunState
from storage import queries
from storage.session import Store
from tests.api_server import served
from tests.commands import coevo

NAME = "a-run-whose-name-is-longer-than-its-column"


def printed(table: Table, width: int) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_names_and_commands_can_be_copied_from_a_narrow_terminal() -> None:
    state = RunState("interrupted", "nobody", datetime(2026, 11, 26, tzinfo=UTC))
    row: dict[str, Any] = {"run": NAME, "preset": "demo", "reason": f"`coevo resume {NAME}` continues it"}
    narrow = printed(_run_table([row], {NAME: state}), 80)
    assert narrow
    assert "…" not in narrow
    assert "remaining" not in narrow  # nobody knows it of any run
    ranged = {**row, "remaining": {"of_run": {"low": 60.0, "high": 120.0}}}
    assert "remaining" in printed(_run_table([ranged], {NAME: state}), 160)


def test_a_fraction_of_a_cent_is_not_shown_as_nothing() -> None:
    one = replace(NOTHING, seconds=1.0)
    rows = [
        Cost(1, "evaluate", "stage", replace(one, money=0.004)),
        Cost(1, "train_solver", "stage", replace(one, money=1234.5)),
        Cost(1, "check_health", "stage", one),
    ]
    total = sum((row.amounts for row in rows), NOTHING)
    lines = printed(_table(RunCosts("USD", rows, total, None, NOTHING, 0, [])), 100).splitlines()
    by_stage = {line.split()[0]: line.split()[-1] for line in lines if line.strip("─ ")}
    assert (by_stage["evaluate"], by_stage["train_solver"], by_stage["check_health"]) == ("<0.01", "1,234.50", "s")


def test_tags_and_notes_are_listed(sqlite: Store, tmp_path: Path) -> None:
    tags, note = ["a", "paper:srt"], "line 1\n[red]line 2"
    with sqlite.write() as session:
        for name in ("first", "second"):
            queries.runs.create_run(session, name=name, config=CoEvolution())
        queries.run_notes.annotate(session, "first", add=tags, note=note, by="ann")
    with served(create_app(sqlite, tmp_path, ask_for_keys=False)) as url:
        lines = coevo("runs", "list", "--json", "--url", url).stdout.splitlines()
        table = coevo("runs", "list", "--url", url, COLUMNS="160").stdout
        [only] = coevo("runs", "list", "--json", "--tag", "a", "--url", url).stdout.splitlines()
    listed = {run["name"]: (run["tags"], run["note"], run["noted_by"]) for run in map(json.loads, lines)}
    assert listed == {"first": (tags, note, "ann"), "second": ([], "", None)}
    assert "a, paper:srt" in table
    assert "line 1" in table
    assert json.loads(only)["name"] == "first"


@pytest.mark.parametrize(
    ("is_terminal", "printed"),
    [
        (True, "\x1b[Kwaiting\r\x1b[K8 of 1,020 questions\r\x1b[K1,020 of 1,020 questions\n"),
        (False, "waiting\n8 of 1,020 questions\n1,020 of 1,020 questions\n"),
    ],
)
def test_progress_takes_one_line_of_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool, printed: str
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    print_progress(0, 1, "waiting")
    print_progress(8, 1020, "questions")
    print_progress(1020, 1020, "questions")
    assert capsys.readouterr().err == printed
