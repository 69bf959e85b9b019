"""`coevo up`, `down`, `migrate` and `status`: the services of this machine, the store, and the runs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from sqlalchemy.orm import Session

from core.settings.parsing import ConfigError, parse_config
from orchestrator.cli.addresses import addresses
from orchestrator.cli.question import printable
from orchestrator.cli.runs import state_cells
from orchestrator.cli.terminal import clear_errors
from orchestrator.installation import cluster
from orchestrator.installation.home import home
from orchestrator.ledger import release_dead
from orchestrator.plan import plan
from services.remaining import range_text, remaining_in
from storage import queries
from storage.rows import PoolRow, RunDetail, StageRow
from storage.session import open_store

_PORTS = cluster.Ports()


def up(
    serve_port: Annotated[int, typer.Option(help="Port of the inference services.")] = _PORTS.serve,
    dashboard_port: Annotated[int, typer.Option(help="Port of Ray's dashboard.")] = _PORTS.dashboard,
    prefect_port: Annotated[int, typer.Option(help="Port of Prefect's UI and API.")] = _PORTS.prefect,
    ray_port: Annotated[int, typer.Option(help="Port of Ray itself.")] = _PORTS.ray,
    api_port: Annotated[int, typer.Option(help="Port of the dashboard and the REST API.")] = _PORTS.api,
    free_ports: Annotated[
        bool, typer.Option("--free-ports", help="Use free ports, whatever the other options say.")
    ] = False,
) -> None:
    """Start Ray, Prefect, the flow runner and the dashboard on this machine, and wait until they answer.

    A port of 0 stands for any free port.
    """
    with clear_errors():
        coevo_home = home()
        open_store(coevo_home.database, create=True).close()
        ports = cluster.Ports(serve_port, dashboard_port, prefect_port, ray_port, api_port)
        if free_ports:
            ports = cluster.Ports(0, 0, 0, 0, 0)
        services = cluster.up(coevo_home, ports, lambda line: print(line, flush=True))
        print("\n".join(addresses(coevo_home, services, secrets=True)))


def down() -> None:
    """Stop the services that `coevo up` started."""
    with clear_errors():
        stopped = cluster.down(home())
        print(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


def migrate() -> None:
    """Create the store's tables or update them to this version. `coevo up` does so too; with containers, run this."""
    with clear_errors():
        coevo_home = home()
        store = open_store(coevo_home.database, create=True)
        print(f"the tables are up to date: {store.address}")
        store.close()


def status(
    secrets: Annotated[bool, typer.Option("--secrets", help="Show the API key and Prefect's password too.")] = False,
) -> None:
    """Show the services with their addresses, the runs with their states, and the trainings in the worker pool."""
    from services.api import run_views
    from services.api.prefect import Prefect

    with clear_errors():
        coevo_home = home()
        running = cluster.running(coevo_home)
        print(f"services: {', '.join(running) or 'none (coevo up starts them)'}")
        if running:
            print("\n".join(addresses(coevo_home, coevo_home.services(), secrets)))
        store = open_store(coevo_home.database)
        release_dead(store)
        known = Prefect(coevo_home.services().prefect if running else None).newest()
        with store.read() as session:
            rows = [(row, queries.ledger.stages_of(session, row.name)) for row in queries.runs.list_runs(session)]
            states, trainings = run_views.all_states(session, known), queries.pool.live_jobs(session)
            remaining = {row.name: _remaining(session, row) for row, _ in rows if states[row.name].active}
        table = Table("run", "state", "since (UTC)", "preset", "stages done", "remaining", "reason", box=SIMPLE_HEAD)
        stored = {row.name: (row.preset, f"{_done(stages)}{_planned(row)}") for row, stages in rows}
        in_prefect = {name: (known.by_run[name].preset, "") for name in states if name not in stored}
        for name, about in {**in_prefect, **stored}.items():
            reason = printable(states[name].reason)
            table.add_row(name, *state_cells(states[name]), *about, remaining.get(name, ""), reason)
        console = Console()
        console.print(table)
        if known.problem:
            console.print(f"Runs that only Prefect knows are missing: {printable(known.problem)}")
        if trainings:
            console.print(_pool_table(trainings))


def _pool_table(trainings: list[PoolRow]) -> Table:
    table = Table("training", "requests", "now", "since (UTC)", title="worker pool", box=SIMPLE_HEAD)
    for row in trainings:
        name, request = f"{row.run} {row.stage} {row.iteration}", f"{row.units:g} {row.kind}"
        table.add_row(name, request, row.status, f"{row.since:%F %H:%M:%S}")
    return table


def _done(stages: list[StageRow]) -> int:
    return sum(stage.status == "done" and stage.stage != "ask_a_person" for stage in stages)


def _planned(row: RunDetail) -> str:
    try:
        return f" of {len([*plan(parse_config(row.config, row.name))])}"
    except ConfigError:  # a run of another version must not keep the others from being shown
        return ", by another version of coevo"


def _remaining(session: Session, row: RunDetail) -> str:
    """The time until the run ends, as a range; empty if nothing is known."""
    try:
        stages = [*plan(parse_config(row.config, row.name))]
    except ConfigError:  # as in `_planned`
        return ""
    return range_text(remaining_in(session, row, stages).of_run)
