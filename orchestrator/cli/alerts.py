"""`coevo alerts`: what the rules found in runs, and that somebody has seen to it."""

from __future__ import annotations

import getpass
import json
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from orchestrator.cli.terminal import AsJson, clear_errors
from orchestrator.installation.home import home
from storage import queries
from storage.rows import AlertRow
from storage.session import open_store

alerts = typer.Typer(help="What the guard and the drift tests found in runs (docs/alerts.md).", no_args_is_help=True)


@alerts.command("list")
def list_(
    run: Annotated[str | None, typer.Argument(help="Of this run; of all by default.", show_default=False)] = None,
    open_: Annotated[bool, typer.Option("--open", help="Only those that nobody has acknowledged.")] = False,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """Show alerts, the newest first."""
    with clear_errors():
        with open_store(home().database).read() as session:
            if run is not None:
                queries.runs.get_run(session, run)
            rows = queries.alerts.list_alerts(session, run=run, acknowledged=False if open_ else None, limit=limit)
        if as_json:
            print(json.dumps([asdict(row) for row in rows], indent=1, default=datetime.isoformat))
        else:
            for row in rows:
                _show(row, Console(highlight=False))


@alerts.command("acknowledge")
def acknowledge(
    alert: Annotated[str, typer.Argument(help="Its id, as `coevo alerts list` shows it.", show_default=False)],
    note: Annotated[str, typer.Option(help="What was done about it.")] = "",
    by: Annotated[str | None, typer.Option(help="Who; whoever is logged in by default.", show_default=False)] = None,
) -> None:
    """Say that somebody has seen to an alert: once."""
    with clear_errors():
        with open_store(home().database).write() as session:
            row = queries.alerts.acknowledge(session, alert, by or getpass.getuser(), note)
        print(f"acknowledged by {row.acknowledged_by}: {row.text}")


def _show(row: AlertRow, console: Console) -> None:
    """An alert in lines of its own, whose id can be copied whatever the terminal's width."""
    colour = {"warning": "yellow", "critical": "red"}[row.severity]
    seen = f"; seen by {escape(row.acknowledged_by)}" if row.acknowledged_by else ""
    where = f"{escape(row.run)}, iteration {row.iteration}"
    console.print(f"{row.id}  [{colour}]{row.severity}[/]  {row.rule}  {where}  {row.raised_at:%F %H:%M} UTC{seen}")
    console.print(Padding(escape(row.text), (0, 0, 1, 2)))
