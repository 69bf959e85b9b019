"""`coevo experiment` runs the arms of an experiment."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from core.settings.parsing import ConfigError
from orchestrator.cli.comparison_tables import show
from orchestrator.cli.running import run_flow
from orchestrator.cli.terminal import LogFormat, clear_errors, overrides_of
from orchestrator.experiments import PlannedRun, planned, read_experiment, run_all
from orchestrator.installation import cluster
from orchestrator.installation.home import home
from services.comparison import arms_named, compare
from storage.session import open_store


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
    as_json: Annotated[bool, typer.Option("--json", help="With --plan, print one run per line as JSON.")] = False,
    _log_format: LogFormat = None,
) -> None:
    """Run every arm of an experiment with every seed, one run after the other, then compare them (docs/experiments.md).

    The services must be running: `coevo up` starts them. If it is interrupted, run it again to go on: runs that have
    ended are not run again, and more seeds are added to those that are there.
    """
    with clear_errors():
        if as_json and not dry_run:
            raise ConfigError("--json: expected --plan too; `coevo compare` prints the result as JSON")
        short_name, contents = read_experiment(name)
        overrides = overrides_of(override)
        runs = planned(short_name, contents, seeds or contents.seeds, overrides)
        if dry_run:
            for run in runs:
                row = {**asdict(run.row), "preset": run.preset, "overrides": run.overrides}
                print(json.dumps(row) if as_json else f"{run.row.run}: {run.preset}, seed {run.row.seed}")
            return
        coevo_home = home()
        cluster.join(coevo_home)  # refuses early if the services are down
        store = open_store(coevo_home.database, create=True)
        for number, (run, had_ended) in enumerate(run_all(coevo_home, store, runs, _start), 1):
            state = "had ended before" if had_ended else "has ended"
            print(f"{number} of {len(runs)}: {run.row.run} {state}", file=sys.stderr, flush=True)
        with store.read() as session:
            show(compare(session, *arms_named(session, [short_name])))


def _start(run: PlannedRun) -> None:
    run_flow(run.row.run, run.preset, 0, run.overrides)
