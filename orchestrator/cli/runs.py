"""`coevo runs`: runs on a machine whose REST API can be reached, started and ended from here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestrator.cli.addresses import Key, Url, client
from orchestrator.cli.question import printable
from orchestrator.cli.terminal import AsJson, RunName, clear_errors, setting

if TYPE_CHECKING:
    from services.api.schemas import FlowRunState, Triggered

runs = typer.Typer(help="Runs over the REST API, of this machine or of another.", no_args_is_help=True)


@runs.command("list")
def list_(url: Url = None, key: Key = None, as_json: AsJson = False) -> None:
    """Show the runs, the newest first, and what waits to begin or failed before; with --json the runs, one a line."""
    with clear_errors():
        api = client(url, key)
        known = api.runs()
        if as_json:
            for run in known:
                print(run.model_dump_json(ensure_ascii=True))
            return
        table = Table("run", "status", "preset", "iterations", "made (UTC)", box=SIMPLE_HEAD)
        for run in known:
            preset = escape(run.preset or "")
            table.add_row(run.name, run.status, preset, str(run.iterations), f"{run.created_at:%F %H:%M}")
        Console().print(table)
        for flow_run in api.flow_runs():
            if not flow_run.begun and flow_run.state != "CANCELLED":
                _say_not_begun(flow_run)


@runs.command("start")
def start(
    preset: Annotated[str, typer.Argument(help="One of the presets that the server has.", show_default=False)],
    name: Annotated[str | None, typer.Option(help="Name of the run; the preset's name by default.")] = None,
    iterations: Annotated[int | None, typer.Option(help="How many; as the preset says by default.")] = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", help="A setting by its dotted name: dataset.candidates=320.")
    ] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Have a preset run there. A run that exists goes on where it was."""
    with clear_errors():
        overrides = dict(setting(text) for text in override or [])
        _say(client(url, key).create_run(name or preset, preset, iterations=iterations, overrides=overrides))


@runs.command("cancel")
def cancel(
    name: RunName,
    why: Annotated[str | None, typer.Option(help="Shown in the Prefect UI.")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """End what is at a run, or waits to be. It can be resumed."""
    with clear_errors():
        for ended in client(url, key).cancel(name, why):
            _say(ended)


@runs.command("resume")
def resume(
    name: RunName,
    iterations: Annotated[int | None, typer.Option(help="Go on to this many iterations.")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Have a run go on where it was."""
    with clear_errors():
        _say(client(url, key).resume(name, iterations))


@runs.command("decide")
def decide(
    name: RunName,
    decision: Annotated[str, typer.Argument(help="One of: go on, roll back, stop.", show_default=False)],
    note: Annotated[str, typer.Option(help="Kept with the decision.")] = "",
    url: Url = None,
    key: Key = None,
) -> None:
    """Answer a run that is paused until a person says what to do."""
    with clear_errors():
        _say(client(url, key).decide(name, decision, note))


def _say_not_begun(flow_run: FlowRunState) -> None:
    failed = flow_run.state in ("FAILED", "CRASHED")
    how = f"failed before it began: {flow_run.message}" if failed else f"not begun, {flow_run.name.lower()} in Prefect"
    # Its state's message may hold what a model wrote.
    Console(emoji=False, highlight=False, soft_wrap=True).print(f"run {flow_run.run}: {printable(how)}; {flow_run.url}")


def _say(triggered: Triggered) -> None:
    print(f"run {triggered.run}: {triggered.state.lower()}; {triggered.url}")
