"""`coevo run` and `coevo resume`: a flow in the command's own process."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from core.settings.parsing import load_config
from core.types import Flow
from orchestrator.cli.terminal import RunName, clear_errors, setting
from orchestrator.installation import cluster
from orchestrator.installation.home import home
from orchestrator.ledger import refuse_held
from orchestrator.runs import RunError, preset_path, startable, stored_config
from storage.session import open_store


def run(
    preset: Annotated[
        str | None, typer.Argument(help="A preset of deploy/runs, or a TOML file.", show_default=False)
    ] = None,
    preset_option: Annotated[str | None, typer.Option("--preset", help="The same.", show_default=False)] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; the preset's name by default.")] = None,
    iterations: Annotated[int, typer.Option(help="How many; 0: as the preset says.")] = 0,
    override: Annotated[
        list[str] | None, typer.Option("--set", help="A setting by its dotted name: dataset.candidates=320.")
    ] = None,
) -> None:
    """Run a preset here and now; it also shows in the Prefect UI. A run that exists goes on where it was."""
    with clear_errors():
        preset = preset or preset_option
        if preset is None:
            raise RunError("preset: expected a preset of deploy/runs, or a TOML file, got none")
        overrides = dict(setting(text) for text in override or [])
        config = load_config(preset_path(preset), overrides)  # complain before anything else is looked at
        parameters: dict[str, Any] = {"run": name or Path(preset).stem, "preset": preset, "iterations": iterations}
        _run_flow(config.kind, **parameters, overrides=overrides)


def resume(name: RunName, iterations: Annotated[int, typer.Option(help="Go on to this many iterations.")] = 0) -> None:
    """Go on with a run where it was: nothing that is done is done again."""
    with clear_errors():
        config = stored_config(open_store(home().database), name)
        _run_flow(config.kind, run=name, preset="", iterations=iterations, overrides={})


def _run_flow(flow: Flow, **parameters: Any) -> None:
    """Run a flow in this process, after all that can be refused without it has been refused."""
    coevo_home = home()
    cluster.join(coevo_home)
    store = open_store(coevo_home.database, create=True)
    refuse_held(store, parameters["run"])
    startable(store, **parameters, flow=flow)
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    from orchestrator import flows  # Prefect reads its settings when it is imported

    for handler in logging.getLogger().handlers:
        handler.addFilter(_not_of_a_flow_run)
    result = getattr(flows, flow)(**parameters)
    name = result["run"]
    print(f"run {name}: {result['status']}; its Solver is {result['solver']}; `coevo report {name}` shows it")


def _not_of_a_flow_run(record: logging.LogRecord) -> bool:
    """Prefect logs a run's error once for each flow and task around it; the command says it once, the UI shows all."""
    return not record.name.startswith(("prefect.flow_runs", "prefect.task_runs"))
