"""`coevo experiment` runs the arms of an experiment, `coevo compare` compares them, or any runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from core.statistics.seeds import Difference
from orchestrator.cli.running import run_flow
from orchestrator.cli.terminal import AsJson, clear_errors, setting
from orchestrator.experiments import PlannedRun, planned, read_experiment, run_all
from orchestrator.installation import cluster
from orchestrator.installation.home import home
from services.comparison import SCORES, ArmFigures, Comparison, Point, arms_named, compare
from storage.session import open_store

_TITLES = {"greedy": "greedy", "majority": "majority", "pass_at_1": "pass@1", "label_accuracy": "labels"}


def experiment(
    name: Annotated[
        str, typer.Argument(help="Name in deploy/experiments, or path of a TOML file.", show_default=False)
    ],
    seeds: Annotated[int, typer.Option(help="Number of seeds; 0 takes the experiment's.", min=0)] = 0,
    override: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a setting in all arms: iterations=2. May be given more than once."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--plan", help="Print the runs, and run nothing.")] = False,
) -> None:
    """Run every arm of an experiment with every seed, one run after the other, then compare them (docs/experiments.md).

    The services must be running: `coevo up` starts them. If it is interrupted, run it again to go on: runs that have
    ended are not run again, and more seeds are added to those that are there.
    """
    with clear_errors():
        short_name, contents = read_experiment(name)
        overrides = dict(map(setting, override or []))
        runs = planned(short_name, contents, seeds or contents.seeds, overrides)
        if dry_run:
            for one in runs:
                print(f"{one.row.run}: {one.preset}, seed {one.row.seed}")
            return
        coevo_home = home()
        cluster.join(coevo_home)  # refuses early if the services are down
        store = open_store(coevo_home.database, create=True)
        for number, (one, had_ended) in enumerate(run_all(coevo_home, store, runs, _start), 1):
            state = "had ended before" if had_ended else "has ended"
            print(f"{number} of {len(runs)}: {one.row.run} {state}", file=sys.stderr, flush=True)
        with store.read() as session:
            show(compare(session, *arms_named(session, [short_name])))


def _start(one: PlannedRun) -> None:
    run_flow(one.config.kind, run=one.row.run, preset=one.preset, iterations=0, overrides=one.overrides)


def compare_command(
    names: Annotated[list[str], typer.Argument(help="An experiment, or two runs or more.", show_default=False)],
    picture: Annotated[
        Path | None, typer.Option(help="Draw accuracy by iteration into this PNG file.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the arms of an experiment, or runs, with the first as the baseline (docs/experiments.md)."""
    with clear_errors():
        with open_store(home().database).read() as session:
            comparison = compare(session, *arms_named(session, names))
        if picture is not None:
            from orchestrator.report.comparison import picture_of  # matplotlib takes a second to import

            picture.write_bytes(picture_of(comparison))
        if as_json:
            print(TypeAdapter(Comparison).dump_json(comparison, indent=1).decode())
        else:
            show(comparison)


def show(comparison: Comparison) -> None:
    console = Console(highlight=False)
    console.print(_table(comparison))
    for line in _remarks(comparison):
        console.print(line, markup=False)


def _table(comparison: Comparison) -> Table:
    """One row for each arm: its figures after the last iteration, and below each its difference to the baseline."""
    table = Table(box=SIMPLE_HEAD, show_lines=True, padding=(0, 1, 0, 0))
    table.title = f"{comparison.benchmark}, {comparison.questions:,} questions, after the last iteration t: percent"
    table.add_column("arm", overflow="fold", min_width=12)
    table.add_column("seeds", justify="right")
    table.add_column("t", justify="right")
    names = [*SCORES, *(["label_accuracy"] if _has_labels(comparison) else [])]
    for name in names:
        table.add_column(_TITLES[name], no_wrap=True)
    for arm in comparison.arms:
        cells = [_cell(_point(arm, name), arm.differences.get(name)) for name in names]
        table.add_row(arm.arm, str(len(arm.runs)), str(arm.iteration), *cells)
    return table


def _has_labels(comparison: Comparison) -> bool:
    return any(_point(arm, "label_accuracy") for arm in comparison.arms)


def _point(arm: ArmFigures, name: str) -> Point | None:
    return next((point for point in arm.curves.get(name, []) if point.iteration == arm.iteration), None)


def _cell(point: Point | None, difference: Difference | None) -> str:
    if point is None:
        return ""
    lines = [f"{100 * point.mean:.1f}"]
    if point.interval is not None:
        lines.append(f"{100 * point.interval.lo:.1f} to {100 * point.interval.hi:.1f}")
    if difference is not None:
        value, lo, hi = (100 * x for x in (difference.estimate.value, difference.estimate.lo, difference.estimate.hi))
        lines += [f"{value:+.1f}", f"{lo:+.1f} to {hi:+.1f}", f"p = {difference.p:.2g}"]
    return "\n".join(lines)


def _remarks(comparison: Comparison) -> Iterator[str]:
    yield "First the mean over seeds, and its 95% interval over seeds if there are several."
    if len(comparison.arms) > 1:
        yield f"Then the difference to {comparison.baseline}: a paired bootstrap over questions and seeds."
    if _has_labels(comparison):
        yield "labels: the share of right pseudo-labels among the kept questions, by the run's oracle."
    for arm in comparison.arms:
        if arm.settings:
            yield f"{arm.arm}: {', '.join(f'{name} = {value}' for name, value in arm.settings.items())}"
