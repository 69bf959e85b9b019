"""`coevo show alerts` and `coevo runs acknowledge`: the alerts that were raised on runs, or that would be."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from orchestrator.cli.terminal import AsJson, opened, print_json, reading, wide
from storage import queries
from storage.rows import AlertRow


def alerts(
    run: Annotated[
        str | None,
        typer.Argument(help="Only the alerts of this run; by default those of all runs.", show_default=False),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Only alerts that nobody has acknowledged.")] = False,
    limit: Annotated[int, typer.Option(help="Show at most this many alerts.", min=1)] = 50,
    replayed: Annotated[
        bool,
        typer.Option(
            "--replay", help="What the guard and the tests of this version say of a run's figures, and since when."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the alerts that the guard and the drift tests raised, the newest first (docs/alerts.md)."""
    if replayed:
        _replay(run, as_json)
        return
    with reading() as session:
        if run is not None:
            queries.runs.get_run(session, run)
        rows = queries.alerts.list_alerts(session, run=run, acknowledged=False if open_ else None, limit=limit)
    if as_json:
        print_json(rows)
    else:
        for row in rows:  # not as a table, so that an id can be copied at any terminal width
            colour = {"warning": "yellow", "critical": "red"}[row.severity]
            acknowledged = f"; acknowledged by {escape(row.acknowledged_by)}" if row.acknowledged_by else ""
            raised = f"{escape(row.run)}, iteration {row.iteration}  {row.raised_at:%F %H:%M} UTC"
            wide().print(f"{row.id}  [{colour}]{row.severity}[/]  {row.rule}  {raised}{acknowledged}")
            wide().print(Padding(escape(row.text), (0, 0, 1, 2), expand=False))


def _replay(run: str | None, as_json: bool) -> None:
    """Print the alerts that each signal and rule would have raised: their iterations, and the first one's text."""
    from orchestrator.analysis.alerts import replay_alerts, silent

    if run is None:
        raise typer.BadParameter("expected RUN with --replay")
    coevo_home, store = opened()
    rows = replay_alerts(coevo_home, store, run)
    if as_json:
        print_json(rows)
        return
    by_rule: dict[tuple[str, str], list[AlertRow]] = {}
    for row in rows:
        by_rule.setdefault((row.rule, " ".join(filter(None, (row.series, row.over, row.oracle)))), []).append(row)
    table = Table("rule", "figure", "iterations", "what it says first", box=SIMPLE_HEAD)
    for (rule, figure), of_rule in by_rule.items():
        table.add_row(rule, figure, " ".join(str(row.iteration) for row in of_rule), escape(of_rule[0].text))
    wide().print(table)
    with store.read() as session:
        print(f"silent: {', '.join(silent(queries.runs.config_of_run(session, run), rows)) or 'none'}")


def acknowledge(
    alert: Annotated[str, typer.Argument(help="Id of the alert, as `coevo show alerts` shows it.", show_default=False)],
    note: Annotated[str, typer.Option(help="What was done about the alert.")] = "",
    by: Annotated[
        str | None, typer.Option(help="Who acknowledges it; by default the logged-in user.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Record that somebody has dealt with an alert. Each alert can be acknowledged once."""
    _, store = opened()
    with store.write() as session:
        row = queries.alerts.acknowledge(session, alert, by or getpass.getuser(), note)
    if as_json:
        print_json(row)
    else:
        print(f"acknowledged by {row.acknowledged_by}: {row.text}")
