"""The `coevo` command."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from core.config import ConfigError, load_config, parse_config
from core.unicode import from_json
from orchestrator import (
    cli_alerts,
    cli_api,
    cli_audit,
    cli_easyr1,
    cli_matrix,
    cli_methods,
    cli_plan,
    cli_runs,
    cli_series,
    cluster,
)
from orchestrator.cli_addresses import addresses
from orchestrator.home import home
from orchestrator.ledger import STAGES, is_alive, refuse_held
from orchestrator.plan import LOOP, plan
from orchestrator.runs import Flow, RunError, check_start, flow_of, preset_path, startable, stored_config
from orchestrator.terminal import AsJson, RunName, clear_errors, setting
from storage import queries
from storage.rows import PoolRow, RunRow
from storage.session import open_store

app = typer.Typer(
    help="Co-evolve a Challenger and a Solver: the R-Zero loop as a service.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
micro = typer.Typer(help="The tiny base model that the demo runs on.", no_args_is_help=True)
app.add_typer(micro, name="micro")
app.add_typer(cli_methods.rewards, name="rewards")
app.add_typer(cli_easyr1.easyr1, name="easyr1")
app.add_typer(cli_api.keys, name="keys")
app.add_typer(cli_alerts.alerts, name="alerts")
app.add_typer(cli_runs.runs, name="runs")
app.add_typer(cli_audit.audit, name="audit")
app.command()(cli_api.api)
app.command()(cli_api.questions)
app.command()(cli_series.series)
app.command()(cli_matrix.matrix)
app.command()(cli_methods.replay)
app.command()(cli_plan.plan)

_PORTS = cluster.Ports()
BENCHES = (
    *("similarity", "voting", "store", "engine", "methods", "collapse"),
    *("sets", "replay", "serving", "swap", "rest"),
)


@app.command()
def up(
    serve_port: Annotated[int, typer.Option(help="Inference services; 0 takes a free one.")] = _PORTS.serve,
    dashboard_port: Annotated[int, typer.Option(help="Ray's dashboard.")] = _PORTS.dashboard,
    prefect_port: Annotated[int, typer.Option(help="Prefect's UI and API.")] = _PORTS.prefect,
    ray_port: Annotated[int, typer.Option(help="Ray itself.")] = _PORTS.ray,
    api_port: Annotated[int, typer.Option(help="The dashboard and the REST API.")] = _PORTS.api,
    free_ports: Annotated[bool, typer.Option("--free-ports", help="Take any free ports.")] = False,
) -> None:
    """Start Ray, Prefect, the flow runner and the dashboard on this machine, and wait until they answer."""
    with clear_errors():
        place = home()
        open_store(place.database, create=True).close()
        asked = cluster.Ports(serve_port, dashboard_port, prefect_port, ray_port, api_port)
        ports = cluster.Ports(0, 0, 0, 0, 0) if free_ports else asked
        services = cluster.up(place, ports, lambda line: print(line, flush=True))
        print("\n".join(addresses(place, services, secrets=True)))


@app.command()
def down() -> None:
    """End what `coevo up` started."""
    with clear_errors():
        ended = cluster.down(home())
        print(f"ended: {', '.join(ended)}" if ended else "nothing was running")


@app.command()
def migrate() -> None:
    """Make the store's tables, or bring them up to date. `coevo up` does so too; containers need a step of its own."""
    with clear_errors():
        place = home()
        store = open_store(place.database, create=True)
        print(f"the tables are up to date: {store.address}")
        store.close()


@app.command()
def status(
    secrets: Annotated[bool, typer.Option("--secrets", help="Show the key and the password, too.")] = False,
) -> None:
    """Show the services with their addresses, the runs, and what is at work."""
    with clear_errors():
        place = home()
        running = cluster.running(place)
        print(f"services: {', '.join(running) or 'none (coevo up starts them)'}")
        if running:
            print("\n".join(addresses(place, place.services(), secrets)))
        store = open_store(place.database)
        with store.read() as session:
            runs = [(row, queries.stages_of(session, row.name)) for row in queries.list_runs(session)]
            trainings = [row for row in queries.pool_jobs(session) if row.status != "done"]
        table = Table("run", "status", "preset", "stages done", "now", box=SIMPLE_HEAD)
        for row, stages in runs:
            done = sum(stage.status == "done" and stage.stage != "ask_a_person" for stage in stages)
            table.add_row(row.name, row.status, row.preset, f"{done}{_planned(row)}", _now(stages))
        Console().print(table)
        if trainings:
            Console().print(_pool_table(trainings))


def _pool_table(trainings: list[PoolRow]) -> Table:
    table = Table("training", "asks for", "priority", "now", "since (UTC)", title="worker pool", box=SIMPLE_HEAD)
    for row in trainings:
        status = "stops at its next checkpoint" if row.preempted else row.status
        now = status if is_alive(row.owner) else "[yellow]cut off[/]"
        name, wish = f"{row.run} {row.stage} {row.iteration}", f"{row.units:g} {row.kind}"
        table.add_row(name, wish, str(row.priority), now, f"{row.since:%F %H:%M:%S}")
    return table


def _planned(row: RunRow) -> str:
    try:
        return f" of {len([*plan(parse_config(row.config, row.name))])}"
    except ConfigError:  # another version's run must not hide all others
        return ", by another version of coevo"


def _now(stages: Any) -> str:
    for stage in stages:
        if stage.status == "running":
            word = "at work" if is_alive(stage.owner) else "[yellow]cut off: coevo resume[/]"
            return f"{stage.stage} {stage.iteration}: {word}"
        if stage.status == "failed":
            return f"[red]{stage.stage} {stage.iteration} failed: {escape((stage.error or '')[:80])}[/]"
    return ""


@app.command()
def run(
    preset: Annotated[
        str | None, typer.Argument(help="A preset of deploy/runs, or a TOML file.", show_default=False)
    ] = None,
    preset_option: Annotated[str | None, typer.Option("--preset", help="The same.", show_default=False)] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; the preset's name by default.")] = None,
    iterations: Annotated[int, typer.Option(help="How many; 0: as the preset says.")] = 0,
    start_iteration: Annotated[int, typer.Option(help="Begin here; all before must be done. 0: where it is.")] = 0,
    start_stage: Annotated[str, typer.Option(help=f"Its stage to begin at: {', '.join(LOOP)}.")] = LOOP[0],
    override: Annotated[
        list[str] | None, typer.Option("--set", help="A setting by its dotted name: dataset.candidates=320.")
    ] = None,
) -> None:
    """Run a preset here and now; it also shows in the Prefect UI. A run that exists goes on where it was."""
    with clear_errors():
        preset = preset or preset_option
        if preset is None:
            raise RunError("preset: expected a preset of deploy/runs, or a TOML file, got none")
        if start_stage not in STAGES:
            raise RunError(f"start_stage: expected one of {', '.join(STAGES)}, got {start_stage!r}")
        overrides = dict(setting(text) for text in override or [])
        config = load_config(preset_path(preset), overrides)  # complain before anything else is looked at
        parameters: dict[str, Any] = {"run": name or Path(preset).stem, "preset": preset, "iterations": iterations}
        if flow_of(config) == "self_train":
            if start_iteration or start_stage != LOOP[0]:
                raise RunError("start_iteration, start_stage: a run on given prompts goes on where it was")
            _run_flow("self_train", **parameters, overrides=overrides)
        else:
            start = {"start_iteration": start_iteration, "start_stage": start_stage}
            _run_flow("co_evolve", start, **parameters, overrides=overrides)


@app.command()
def resume(name: RunName, iterations: Annotated[int, typer.Option(help="Go on to this many iterations.")] = 0) -> None:
    """Go on with a run where it was: nothing that is done is done again."""
    with clear_errors():
        config = stored_config(open_store(home().database), name)
        _run_flow(flow_of(config), run=name, preset="", iterations=iterations, overrides={})


def _run_flow(flow: Flow, start: Mapping[str, Any] | None = None, **parameters: Any) -> None:
    """Run a flow in this process, after all that can be refused without it has been refused."""
    place = home()
    services = cluster.needed(place)
    store = open_store(place.database, create=True)
    refuse_held(store, parameters["run"])
    config = startable(store, **parameters, flow=flow)
    if start:
        check_start(store, parameters["run"], config, start["start_iteration"], start["start_stage"])
    os.environ.update(cluster.environment(place, services))
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
    from orchestrator import flows  # Prefect reads its settings when it is imported

    for handler in logging.getLogger().handlers:
        handler.addFilter(_not_of_a_flow_run)
    result = getattr(flows, flow)(**parameters, **(start or {}))
    name = result["run"]
    print(f"run {name}: {result['status']}; its Solver is {result['solver']}; `coevo report {name}` shows it")


def _not_of_a_flow_run(record: logging.LogRecord) -> bool:
    """Prefect logs a run's error once for each flow and task around it; the command says it once, the UI shows all."""
    return not record.name.startswith(("prefect.flow_runs", "prefect.task_runs"))


@app.command()
def report(
    name: RunName,
    as_json: AsJson = False,
    summary: Annotated[bool, typer.Option("--summary", help="Print a table of the main figures instead.")] = False,
) -> None:
    """Write a run's report as an HTML page, or print its figures."""
    with clear_errors():
        from orchestrator.report import figures, summary_table, write_report

        place = home()
        store = open_store(place.database)
        if as_json:
            print(json.dumps(figures(store, name), indent=1, allow_nan=False))
        elif summary:
            Console(width=120).print(summary_table(store, name))
        else:
            print(write_report(store, name, place.reports))


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(BENCHES)}.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Measure one of the claims of the README on this machine."""
    with clear_errors():
        if name not in BENCHES:
            raise RunError(f"bench: expected one of {', '.join(BENCHES)}, got {name!r}")
        result = importlib.import_module(f"benchmarks.{name}").run()
        _print(result, as_json)


@app.command()
def grade(
    a: Annotated[str | None, typer.Argument(help="An answer.", show_default=False)] = None,
    b: Annotated[str | None, typer.Argument(help="Another one.", show_default=False)] = None,
    file: Annotated[Path | None, typer.Option(help='JSONL of {"a", "b"} instead.')] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether two answers are equal, unequal, or cannot be told apart."""
    with clear_errors():
        from core.grading import grade_pairs

        pairs = _pairs(file) if file else [(a, b)] if a is not None and b is not None else None
        if pairs is None:
            raise RunError("grade: expected two answers, or --file PAIRS.jsonl")
        graded = list(zip(pairs, grade_pairs(pairs), strict=True))
        if as_json:
            rows = [
                {"a": x, "b": y, "verdict": c.verdict, "reason": c.reason, "seconds": round(c.seconds, 4)}
                for (x, y), c in graded
            ]
            print(json.dumps(rows, indent=1))
        else:
            for _, c in graded:
                print(c.verdict + (f" ({c.reason})" if c.reason else ""))


def _pairs(file: Path) -> list[tuple[str, str]]:
    pairs = []
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise RunError(f"--file: cannot read {file}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = from_json(line)
            a, b = row["a"], row["b"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise RunError(f"--file {file}, line {number}: expected a JSON object with a and b: {error!r}") from error
        if not isinstance(a, str) or not isinstance(b, str):
            raise RunError(f"--file {file}, line {number}: expected a and b to be texts")
        pairs.append((a, b))
    return pairs


@micro.command("build")
def micro_build(
    folder: Annotated[Path, typer.Argument(help="Where to write the model.", show_default=False)],
) -> None:
    """Pre-train the tiny base model from its generated corpus (about twenty minutes on one core)."""
    with clear_errors():
        from trainers.micro.build import build

        build(folder, lambda line: print(line, file=sys.stderr, flush=True))
        print(folder)


def _print(result: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result, indent=1))
        return
    for key, value in result.items():
        print(f"{key}: {value}")


if __name__ == "__main__":
    app()
