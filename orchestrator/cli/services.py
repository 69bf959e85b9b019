"""`coevo up`, `down`, `status` and `store migrate`: the services of this machine, the store, and the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from sqlalchemy.orm import Session

from orchestrator.cli.addresses import DASHBOARD, addresses, lines_of
from orchestrator.cli.runs import state_cells
from orchestrator.cli.terminal import AsJson, Limit, LogFormat, first_rows, opened, print_json, printable, wide
from orchestrator.installation import cluster
from orchestrator.installation.home import Home, home, make_private
from orchestrator.installation.ports import ANY_FREE, Ports, StartError
from orchestrator.ledger import release_dead
from orchestrator.plan import plan
from services.views.remaining import range_text, remaining_in
from services.views.states import RunState
from storage import queries
from storage.errors import NotThere, StoreError, UnreadableSettings
from storage.rows import RunDetail
from storage.session import DATABASE_ERRORS

_USUAL = Ports()


def _port_option(what: str, usual: int) -> Any:
    text = f"Port of {what}; by default that of the last start here if it is free, else {usual}."
    return typer.Option(help=text, min=0, max=65_535, show_default=False)


def up(
    serve_port: Annotated[int | None, _port_option("the inference services", _USUAL.serve)] = None,
    dashboard_port: Annotated[int | None, _port_option("Ray's dashboard", _USUAL.dashboard)] = None,
    prefect_port: Annotated[int | None, _port_option("Prefect's UI and API", _USUAL.prefect)] = None,
    api_port: Annotated[int | None, _port_option("the dashboard and the REST API", _USUAL.api)] = None,
    free_ports: Annotated[
        bool,
        typer.Option("--free-ports", help="Use free ports instead of the usual ones where no port is given."),
    ] = False,
    _log_format: LogFormat = None,
) -> None:
    """Start the services of this machine, wait until they answer, and print their addresses.

    The services are Ray, Prefect, the flow runner and the dashboard. Those that are running stay; those that have ended
    are started again on their ports. After `coevo down` or a reboot the ports are those of the last start, so that
    addresses stay the same. A port of 0 stands for any free port.
    """
    coevo_home = home()
    make_private(coevo_home.path)  # before the store is made in it
    opened(create=True)
    options = {"serve": serve_port, "dashboard": dashboard_port, "prefect": prefect_port, "api": api_port}
    given = {name: port for name, port in options.items() if port is not None}
    cluster.refuse_other_ports(coevo_home, given)
    ports = replace((ANY_FREE if free_ports else _USUAL).as_last_time(coevo_home), **given)
    services = cluster.up(coevo_home, ports, lambda line: print(line, flush=True))
    print(*lines_of(addresses(coevo_home, services, secrets=True)), sep="\n")


def down(
    force: Annotated[bool, typer.Option("--force", help="Also while runs are at work, which interrupts them.")] = False,
) -> None:
    """Stop the services that `coevo up` started, unless a run is at work."""
    coevo_home = home()
    if not force and (at_work := _runs_at_work(coevo_home)):
        raise StartError(
            f"runs are at work: {', '.join(at_work)}. Without the services they would be interrupted: wait until "
            "they have ended, cancel them, or add --force"
        )
    stopped = cluster.down(coevo_home, print)
    print(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


def _runs_at_work(coevo_home: Home) -> list[str]:
    """The runs that live processes work on; none if the database cannot be asked, since `down` must work then too."""
    if not cluster.running(coevo_home):
        return []
    try:
        _, store = opened()
        release_dead(store)
        with store.read() as session:
            leases, now = queries.run_leases.leases(session), queries.tables.database_time(session)
    except (StoreError, *DATABASE_ERRORS):
        return []
    return sorted(run for run, lease in leases.items() if lease.expires > now)


def migrate() -> None:
    """Create the store's tables or update them to this version. `coevo up` does so too; with containers, run this."""
    _, store = opened(create=True)
    print(f"the tables are up to date: {store.address}")


def status(
    secrets: Annotated[
        bool, typer.Option("--secrets", help="Show the API key, Prefect's password and Ray's token too.")
    ] = False,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Show the services with their addresses, the runs with their states, and the trainings in the worker pool.

    The runs that a process works on or will take come first, then the newest. --limit is for the runs.
    """
    from services.api import run_views
    from services.prefect.client import Prefect

    coevo_home = home()
    running, ended = cluster.running(coevo_home), cluster.ended(coevo_home)
    shown = addresses(coevo_home, coevo_home.services(), secrets) if running else {}
    try:
        _, store = opened()
    except NotThere as error:
        if running or as_json:
            raise
        print(f"{_services_line(running, ended)}\nno runs: {error}")
        return
    release_dead(store)
    known = Prefect(coevo_home.services().prefect if running else None).newest()
    problem = known.problem if "prefect" in running else "Prefect is not running; `coevo up` starts it"
    with store.read() as session:
        states, trainings = run_views.all_states(session, known), queries.pool.live_jobs(session)
        runs = queries.runs.runs_named(session)
        newest = sorted(runs.values(), key=lambda run: (states[run.name].active, run.created_at), reverse=True)
        rows = (_run_row(session, queries.runs.get_run(session, run.name), states[run.name]) for run in newest)
        stored, cut = first_rows(rows, 0 if as_json and limit is None else limit)
    unstored = [
        {"run": name, "preset": known.by_run[name].preset, **asdict(state)}
        for name, state in states.items()
        if name not in runs
    ]
    if as_json:
        result = {
            "services": running,
            "ended": ended,
            "addresses": shown,
            "runs": [*unstored, *stored],
            "problem": problem,
            "trainings": trainings,
        }
        print_json(result)
        return
    print(_services_line(running, ended))
    print(*lines_of(shown), sep="\n", end="\n" if shown else "")
    if DASHBOARD in shown and not secrets:
        print("`coevo status --secrets` prints the dashboard's address with its key")
    wide().print(_run_table([*unstored, *stored], states))
    if cut:
        print(cut)
    if problem:
        print(f"Runs that only Prefect knows are missing: {printable(problem)}")
    if trainings:
        table = Table("training", "requests", "now", "since (UTC)", title="worker pool", box=SIMPLE_HEAD)
        for row in trainings:
            name, request = f"{row.run} {row.stage} {row.iteration}", f"{row.units:g} {row.kind}"
            table.add_row(name, request, row.status, f"{row.since:%F %H:%M:%S}")
        wide().print(table)


def _services_line(running: Sequence[str], ended: Sequence[str]) -> str:
    if ended:
        alive = f"{', '.join(running)}; " if running else ""
        return f"services: {alive}ended: {', '.join(ended)} (`coevo up` starts what has ended; see its log in the home)"
    return f"services: {', '.join(running) or 'none (`coevo up` starts them)'}"


def _run_row(session: Session, run: RunDetail, state: RunState) -> dict[str, Any]:
    """A stored run with its state. Its remaining time is known only while it is active. `stages_planned` is None if the
    run is by another version of coevo, which must not hide the other runs."""
    row = {"run": run.name, "preset": run.preset, **asdict(state), "remaining": None}
    stages = [stage for stage in queries.ledger.stages_of(session, run.name) if stage.run == run.name]
    row["stages_done"] = sum(stage.status == "done" and stage.stage != "ask_a_person" for stage in stages)
    try:
        planned = [*plan(queries.runs.config_from(run), queries.forks.begins_at(session, run.name))]
    except UnreadableSettings:
        return {**row, "stages_planned": None}
    if state.active:
        row["remaining"] = asdict(remaining_in(session, run, planned))
    return {**row, "stages_planned": len(planned)}


def _run_table(rows: Sequence[Mapping[str, Any]], states: Mapping[str, RunState]) -> Table:
    """A line for each run. Long words are folded, not cut off, so that names and commands can be copied."""
    ranges = {row["run"]: (row.get("remaining") or {}).get("of_run") for row in rows}
    has_remaining = any(ranges.values())
    names = ("run", "state", "since (UTC)", "preset", "stages done", *["remaining"] * has_remaining, "reason")
    table = Table(*(Column(name, overflow="fold") for name in names), box=SIMPLE_HEAD)
    for row in rows:
        run, reason = row["run"], printable(row["reason"])
        left = [range_text(of_run["low"], of_run["high"]) if (of_run := ranges[run]) else ""] * has_remaining
        stages = ""
        if (done := row.get("stages_done")) is not None:
            planned = row["stages_planned"]
            stages = f"{done}, by another version of coevo" if planned is None else f"{done} of {planned}"
        table.add_row(run, *state_cells(states[run]), row["preset"], stages, *left, reason)
    return table
