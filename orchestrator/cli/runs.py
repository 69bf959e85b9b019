"""`coevo runs`: list, start, cancel and resume runs through the REST API, on this machine or another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from orchestrator.check.presets import usual_name
from orchestrator.cli.addresses import Key, Url, client
from orchestrator.cli.alerts import acknowledge
from orchestrator.cli.disk import delete, thin
from orchestrator.cli.logs import log
from orchestrator.cli.terminal import (
    AsJson,
    FromRun,
    Overrides,
    RunName,
    overrides_of,
    printable,
    refuse_neither,
    wide,
)

if TYPE_CHECKING:
    from services.api.schemas import RunSummary
    from services.views.states import RunState, State

_COLOURS: dict[State, str] = {"interrupted": "yellow", "paused": "yellow", "failed": "red", "out_of_budget": "yellow"}

_NOTE_WIDTH = 40  # characters of a note in the list

runs = typer.Typer(
    help="List, start, cancel and resume runs through the REST API, on this machine or another; delete local ones.",
    no_args_is_help=True,
)


@runs.command("list")
def list_(
    tag: Annotated[list[str] | None, typer.Option(help="Only runs with this tag. May be given more than once.")] = None,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """List the runs with their states, newest first, also those that have not begun. --json prints one run per line."""
    from services.api.schemas import RunSummary  # imports FastAPI, which takes half a second

    all_runs = client(url, key).items("/runs", tag=tag)
    if as_json:
        for run in all_runs:
            print(json.dumps(run))
        return
    rows = [*map(RunSummary.model_validate, all_runs)]
    are_noted = any(run.tags or run.note for run in rows)
    noted = ("tags", "note") if are_noted else ()
    table = Table("run", "state", "since (UTC)", "preset", "iterations", "reason", *noted, box=SIMPLE_HEAD)
    for run in rows:
        planned = "" if run.iterations is None else str(run.iterations)
        notes = (", ".join(run.tags), printable(run.note.partition("\n")[0], _NOTE_WIDTH)) if are_noted else ()
        table.add_row(run.name, *state_cells(run), escape(run.preset or ""), planned, printable(run.reason), *notes)
    wide().print(table)


@runs.command("start")
def start(
    preset: Annotated[str | None, typer.Argument(help="Name of a preset on the server.", show_default=False)] = None,
    from_run: FromRun = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; by default the preset's name.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Number of iterations; by default the preset's.")] = None,
    override: Overrides = None,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Start a run of a preset. An existing run continues where it stopped."""
    refuse_neither(preset, from_run)
    origin = {"preset": preset, **({} if from_run is None else {"from_run": from_run})}
    named = name or preset or usual_name(None, from_run)
    body = {"name": named, **origin, "iterations": iterations, "overrides": overrides_of(override)}
    _print_state(client(url, key).send("POST", "/runs", json=body), as_json)


@runs.command("cancel")
def cancel(
    name: RunName,
    why: Annotated[str | None, typer.Option(help="Reason, which the Prefect UI shows.")] = None,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a run that is running or waits to begin. It can be resumed. --json prints one flow run per line."""
    for cancelled in client(url, key).send("POST", f"/runs/{name}/cancel", json={"why": why}):
        _print_state(cancelled, as_json)


@runs.command("resume")
def resume(
    name: RunName,
    iterations: Annotated[int | None, typer.Option(help="Total number of iterations; by default the run's.")] = None,
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Continue a run where it stopped. Finished stages are not run again."""
    body = {"iterations": iterations}
    _print_state(client(url, key).send("POST", f"/runs/{name}/resume", json=body), as_json)


@runs.command("decide")
def decide(
    name: RunName,
    decision: Annotated[str, typer.Argument(help="One of 'go on', 'roll back', stop.", show_default=False)],
    note: Annotated[str, typer.Option(help="Note, which is stored with the decision.")] = "",
    url: Url = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Decide how a run continues that the guard has paused."""
    body = {"decision": decision, "note": note}
    _print_state(client(url, key).send("POST", f"/runs/{name}/decision", json=body), as_json)


runs.command("log")(log)
runs.command("acknowledge")(acknowledge)
runs.command("thin")(thin)
runs.command("delete")(delete)


def state_cells(state: RunState | RunSummary) -> tuple[str, str]:
    """The cells of a table with a run's state and the time since which the run has it."""
    colour = _COLOURS.get(state.state)
    word = state.state.replace("_", " ")
    return (f"[{colour}]{word}[/]" if colour else word), f"{state.since:%F %H:%M}"


def _print_state(triggered: dict[str, Any], as_json: bool) -> None:
    print(json.dumps(triggered) if as_json else "run {run}: {state}: {reason}; {url}".format(**triggered))
