"""`coevo show series`: a run's figures by iteration, each with its interval and its n."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Column, Table

from core.figures import unknown_series
from core.settings.parsing import ConfigError
from orchestrator.cli.terminal import AsJson, RunName, opened, print_json, wide
from services.drift.series import refresh
from services.views.series import SeriesPoint
from storage import queries


def series(
    run: RunName,
    name: Annotated[str | None, typer.Option(help="Only the figure of this name.")] = None,
    recompute: Annotated[
        bool,
        typer.Option("--refresh", help="Compute the figures again first."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a run's figures by iteration, each with its interval and its n (docs/alerts.md). No alert is raised."""
    _, store = opened()
    with store.read() as session:
        queries.runs.get_run(session, run)
        stages = queries.ledger.stages_of(session, run)
    for iteration in sorted({stage.iteration for stage in stages if stage.status == "done"}) if recompute else ():
        with store.write() as session:  # for each, since on SQLite a transaction blocks all other writers
            refresh(session, run, iteration)
    with store.read() as session:
        stored = queries.series.series_of(session, run, name)
        points = SeriesPoint.all_of(stored, queries.forks.inherited(session, run))
    if name is not None and (fault := unknown_series(name, points)):
        raise ConfigError(f"--name: {fault}")
    if as_json:
        print_json(points, allow_nan=False)
        return
    if not points:
        print(f"{name or 'figures'}: no values yet")
        return
    columns = ("figure, over, by", "t", "value [95%]", "n")
    table = Table(*(Column(column, no_wrap=True) for column in columns), box=SIMPLE_HEAD)
    for point in points:
        value = f"{point.value:.4g}" if not point.estimated else f"~{point.value:.4g}"
        interval = "" if point.lo is None or point.hi is None else f" [{point.lo:.3g}, {point.hi:.3g}]"
        figure = " ".join(filter(None, (point.name, point.over, point.oracle)))
        of = "" if point.inherited_from is None else f" of {point.inherited_from}"
        table.add_row(figure, f"{point.iteration}{of}", escape(value + interval), f"{point.n:,}")
    wide().print(table)
    if any(point.estimated for point in points):
        print("~ was not measured, but is estimated from p_hat and the audits of other iterations (docs/audits.md).")
    audited = Counter((point.name, point.over, point.oracle) for point in points if not point.estimated)
    if any(point.estimated and audited[point.name, point.over, point.oracle] == 1 for point in points):
        print("Where one iteration was audited, ~ is calibrated on it alone: the interval is too narrow.")
