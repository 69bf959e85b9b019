"""`coevo report`: a run's page as one HTML file, a table of its main figures, or all figures as JSON."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from orchestrator.cli.terminal import AsJson, RunName, opened, print_json, wide
from orchestrator.installation.home import PAPERS, PRESETS
from services.drift.open_alerts import open_alerts_of
from services.run_report.figures import figures
from services.run_report.headline import headline
from services.run_report.measures import RunMeasures, measure
from services.run_report.summary import summary_rows


def report(
    name: RunName,
    as_json: AsJson = False,
    summary: Annotated[bool, typer.Option("--summary", help="Print a table of the main figures instead.")] = False,
) -> None:
    """Write a run's page as one HTML file that needs no server, and print its path; or print the main figures."""
    coevo_home, store = opened()
    if as_json:
        print_json(figures(store, name), allow_nan=False)
    elif summary:
        measures = measure(store, name)
        wide().print(summary_table(measures))
        print(headline(measures))
        with store.read() as session:
            if (alerts := open_alerts_of(session, name)) is not None:
                print(alerts)
    else:
        from services.api.run_page import write_run_page  # imports the API, which takes a second

        print(write_run_page(store, name, coevo_home.reports, presets=PRESETS, papers=PAPERS))


def summary_table(measures: RunMeasures) -> Table:
    """The main figures of a run, one row for each iteration."""
    base, rows = measures.iterations[0].accuracy, summary_rows(measures)
    n = base.pass_at_1.n if base else 0
    title = f"run {measures.run.name}: n = {n:,} {measures.held_out.lower()} questions, 95% intervals"
    table = Table(*rows[0], title=title, box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row.values())
    if measures.result is not None and measures.result is not measures.iterations[-1]:
        table.caption = f"its Solver is {measures.result.checkpoint}"
    return table
