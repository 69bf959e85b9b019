"""`coevo report`: a run's figures as a page, a table or JSON."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from orchestrator.cli.terminal import AsJson, RunName, clear_errors
from orchestrator.installation.home import home
from orchestrator.report import figures, summary_table, write_report
from services.drift.open_alerts import open_alerts_of
from storage.session import open_store


def report(
    name: RunName,
    as_json: AsJson = False,
    summary: Annotated[bool, typer.Option("--summary", help="Print a table of the main figures instead.")] = False,
) -> None:
    """Write a run's report as an HTML page and print its path, or print the figures."""
    with clear_errors():
        coevo_home = home()
        store = open_store(coevo_home.database)
        if as_json:
            print(json.dumps(figures(store, name), indent=1, allow_nan=False))
        elif summary:
            Console(width=120).print(summary_table(store, name))
            with store.read() as session:
                if (alerts := open_alerts_of(session, name)) is not None:
                    print(alerts)
        else:
            print(write_report(store, name, coevo_home.reports))
