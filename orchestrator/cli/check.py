"""`coevo check`: everything that would keep a run from starting, and what would be missing from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import typer

from core.faults import Fault
from core.settings.config import RunConfig
from core.settings.parsing import ConfigError
from orchestrator.check.refusals import doubtful
from orchestrator.check.size import Assumptions, SizingError, calculate
from orchestrator.check.start import startable, usual_name
from orchestrator.cli.terminal import (
    SET,
    AsJson,
    Iterations,
    LocalRunName,
    Overrides,
    PresetName,
    clear_errors,
    overrides_of,
)
from orchestrator.costs import BudgetSpent, refuse_spent
from orchestrator.installation import cluster
from orchestrator.installation.home import Home, home
from orchestrator.question_sets.benchmarks import BenchmarkError
from storage.errors import NotThere
from storage.session import Store, open_store


def check(
    preset: PresetName,
    name: LocalRunName = None,
    iterations: Iterations = None,
    override: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Check whether a run of a preset could start here, and show all faults at once. Nothing is started or written.

    The exit code is 1 if there is a fault. A warning is about something that the run can do without, or that it would
    wait for. Benchmarks that are not here are not fetched.
    """
    with clear_errors():
        coevo_home, run = home(), name or usual_name(preset)
        store, overrides = _store(coevo_home), overrides_of(override)
        config, faults = startable(store, run, preset, iterations or 0, overrides, overrides_are=SET, fetch=False)
        warnings = [] if config is None else [*_spent(store, run, config), *_warnings(coevo_home, preset, config)]
        if as_json:
            result = {"run": run, "preset": preset, "faults": _rows(faults), "warnings": _rows(warnings)}
            print(json.dumps(result, indent=1))
        else:
            _show(run, faults, warnings)
    if faults:
        raise typer.Exit(1)


def _store(home: Home) -> Store | None:
    try:
        return open_store(home.database)
    except NotThere:
        return None


def _spent(store: Store | None, run: str, config: RunConfig) -> Iterator[Fault]:
    """A budget that an existing run has spent, so that it would end at its next stage."""
    try:
        if store is not None:
            refuse_spent(store, run, config)
    except BudgetSpent as error:
        yield Fault("budget", str(error))


def _warnings(home: Home, preset: str, config: RunConfig) -> list[Fault]:
    warnings = []
    if not cluster.running(home):
        warnings.append(Fault("services", "none are running here", remedy="start them with `coevo up`"))
    try:
        plan = calculate(preset, config, Assumptions())
        doubts = [*doubtful(config, plan.gpus)]
    except (BenchmarkError, ConfigError, SizingError) as error:  # often a fault of the run too
        return [*warnings, Fault("plan", f"it cannot be computed: {error}")]
    sums = f"`coevo plan {preset}`"
    return [
        *warnings,
        *doubts,
        *(Fault("memory", f"by {sums} it does not fit: {problem}") for problem in plan.problems),
    ]


def _rows(faults: list[Fault]) -> list[dict[str, Any]]:
    return [{**asdict(fault), "text": str(fault)} for fault in faults]


def _show(run: str, faults: list[Fault], warnings: list[Fault]) -> None:
    for title, rows in (("fault", faults), ("warning", warnings)):
        for row in rows:
            typer.secho(f"{title}: ", fg="red" if title == "fault" else "yellow", bold=True, nl=False)
            typer.echo(str(row))
    can = "cannot start" if faults else "can start"
    print(f"run {run} {can}: faults {len(faults)}, warnings {len(warnings)}")
