"""`coevo run` and `coevo resume`: run a flow, or those of an experiment, in the command's own process."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from glob import escape
from typing import Annotated, Any

import httpx
import typer

from core import logs
from core.processes.imports import collection_paused
from core.settings.config import RunConfig
from core.settings.parsing import ConfigError
from orchestrator.check.presets import usual_name
from orchestrator.check.start import RunError, check_startable, store_of
from orchestrator.cli.terminal import (
    SET,
    FromRun,
    Iterations,
    LocalRunName,
    LogFormat,
    Overrides,
    RunName,
    clear_errors,
    overrides_of,
    refuse_neither,
    refuse_zero,
    suggest_presets,
)
from orchestrator.experiments import PlannedRun, is_experiment, planned, read_experiment, run_all
from orchestrator.installation import cluster
from orchestrator.installation.home import EXPERIMENTS, home
from orchestrator.ledger import refuse_held
from orchestrator.run import Run, at_hand
from orchestrator.runs import prepare
from services.drift.open_alerts import open_alerts_of
from services.prefect.server import is_away
from services.views.states import states_of
from storage import queries
from storage.session import Store, open_store

_LIMITS = f"a setting that a run may change: {', '.join(queries.runs.LIMITS)}"


def _suggest_presets_and_experiments(incomplete: str) -> list[str]:
    experiments = sorted(file.stem for file in EXPERIMENTS.glob(f"{escape(incomplete)}*.toml"))
    return [*suggest_presets(incomplete), *experiments]


def run(
    preset: Annotated[
        str | None,
        typer.Argument(
            help="Name of a preset in deploy/runs or of an experiment in deploy/experiments, or path of a TOML file.",
            show_default=False,
            autocompletion=_suggest_presets_and_experiments,
        ),
    ] = None,
    from_run: FromRun = None,
    name: LocalRunName = None,
    iterations: Iterations = None,
    override: Overrides = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="Tag the run. May be given more than once.", show_default=False)
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Of an experiment: number of seeds; by default its own.", min=1)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--plan", help="Of an experiment: print its runs, run nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --plan, print one run per line as JSON.")] = False,
    _log_format: LogFormat = None,
) -> None:
    """Run a preset in this terminal, or every arm of an experiment with every seed, one run after the other.

    The services must be running: `coevo up` starts them. The Prefect UI shows the run too. The same command continues a
    run that exists, and an experiment where it stopped: runs that have ended are not run again. At its end, an
    experiment's arms are compared. With --from, a new run begins after an iteration of another one
    (docs/experiments.md).
    """
    with clear_errors():
        refuse_neither(preset, from_run)
        overrides, whole = overrides_of(override), preset is not None and is_experiment(preset)
        of_preset = {"--from": from_run, "--name": name, "--iterations": iterations, "--tag": tags}
        of_experiment = {"--seeds": seeds, "--plan": dry_run, "--json": as_json}
        if given := [option for option, value in (of_preset if whole else of_experiment).items() if value]:
            expected, got = ("a preset", "the experiment") if whole else ("an experiment", "the preset")
            raise ConfigError(f"{given[0]}: expected only with {expected}, got {got} {preset}")
        if preset is not None and whole:
            _run_experiment(preset, seeds, overrides, dry_run, as_json)
        else:
            asked = preset or "", iterations or 0, overrides
            run_flow(name or usual_name(preset, from_run), *asked, tags or (), from_run=from_run or "")


def _run_experiment(name: str, seeds: int | None, overrides: Mapping[str, Any], dry_run: bool, as_json: bool) -> None:
    if as_json and not dry_run:
        raise ConfigError("--json: expected --plan too; `coevo compare` prints the result as JSON")
    short_name, contents = read_experiment(name)
    runs = planned(short_name, contents, seeds or contents.seeds, overrides)
    if dry_run:
        for run in runs:
            row = {**asdict(run.row), "preset": run.preset, "overrides": run.overrides}
            print(json.dumps(row) if as_json else f"{run.row.run}: {run.preset}, seed {run.row.seed}")
        return
    coevo_home = home()
    cluster.join(coevo_home)  # refuses early if the services are down

    def start(run: PlannedRun, checked: RunConfig) -> None:
        run_flow(run.row.run, run.preset, 0, run.overrides, checked=checked)

    with closing(open_store(coevo_home.database, create=True)) as store:
        for number, (run, had_ended) in enumerate(run_all(coevo_home, store, runs, start), 1):
            state = "had ended before" if had_ended else "has ended"
            print(f"{number} of {len(runs)}: {run.row.run} {state}", file=sys.stderr, flush=True)
        from orchestrator.cli.comparison_tables import show  # imported here, so that no single run waits for them
        from services.comparison.runs import arms_named, compare

        with store.read() as session:
            show(compare(session, *arms_named(session, [short_name])))


def resume(
    name: RunName,
    iterations: Annotated[
        int | None,
        typer.Option(
            help="Total number of iterations; by default the run's.", show_default=False, callback=refuse_zero
        ),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(SET, help=f"Change {_LIMITS}, such as budget.hours=24. May be given more than once."),
    ] = None,
    _log_format: LogFormat = None,
) -> None:
    """Continue a run where it stopped, in this terminal. Finished stages are not run again.

    The services must be running: `coevo up` starts them.
    """
    with clear_errors():
        run_flow(name, "", iterations or 0, overrides_of(override))


def run_flow(
    run: str,
    preset: str,
    iterations: int,
    overrides: Mapping[str, Any],
    tags: Collection[str] = (),
    checked: RunConfig | None = None,
    from_run: str = "",
) -> None:
    """Run a run's flow in this process. Everything that can be checked without the services is checked before.

    `preset` is empty for a run that is continued, and for one that begins after an iteration of another (`from_run`).
    With `tags`, the run is created before the flow begins, and gets these tags. `checked` are the run's settings, if
    the caller has checked them.
    """
    queries.run_notes.refuse_tags(tags)
    coevo_home, parameters = home(), (run, preset, iterations, overrides)
    if (store := store_of(coevo_home)) is not None:
        refuse_held(store, run)
    config = checked or check_startable(store, *parameters, overrides_are=SET, from_run=from_run)
    services = cluster.join(coevo_home)
    with closing(store or open_store(coevo_home.database, create=True)) as store:
        cluster.wait_until_ready(coevo_home)
        _print_state(store, run)
        if tags:
            prepare(coevo_home, store, *parameters, config.kind, config, from_run)
            with store.write() as session:
                queries.run_notes.annotate(session, run, add=tags)
        os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
        with collection_paused():
            from orchestrator import flows  # Prefect reads its settings when it is imported
            from orchestrator.reporting.flow_process import retry_connecting

        retry_connecting()  # the services answer; Prefect may be killed and started again before the flow begins
        for handler in logging.getLogger().handlers:
            handler.addFilter(_is_said_once)
        flow = {"co_evolve": flows.co_evolve, "self_train": flows.self_train}[config.kind]
        with _told_how_to_go_on(run), at_hand(Run(run, coevo_home, store, services, config)):
            of_fork = {"from_run": from_run} if from_run else {}
            result = flow(run=run, preset=preset, iterations=iterations, overrides=dict(overrides), **of_fork)
        print(f"run {run}: {result['status']}; its Solver is {result['solver']}; `coevo report {run}` shows it")
        with store.read() as session:
            if (alerts := open_alerts_of(session, run)) is not None:
                print(alerts)


@contextmanager
def _told_how_to_go_on(name: str) -> Iterator[None]:
    """Tell how the run continues after Ctrl-C or `kill -INT`, and when Prefect does not answer any more."""
    try:
        yield
    except (httpx.HTTPError, RuntimeError) as error:
        # A client's first request is for the server's version, whose failure is a RuntimeError.
        cause = error.__cause__ if isinstance(error, RuntimeError) else error
        if not isinstance(cause, httpx.HTTPError) or not is_away(cause):
            raise
        raise RunError(
            f"run {name}: interrupted, because Prefect does not answer: {cause}. Nothing is lost: `coevo up` starts "
            f"what has ended, and then `coevo resume {name}` continues the run"
        ) from error
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process ends now; more of them would only break that off
        print(f"run {name}: cancelled; `coevo resume {name}` continues it", file=sys.stderr)
        raise


def _print_state(store: Store, name: str) -> None:
    """Print the state that an existing run has until it goes on. A run that an experiment has just created does not go
    on: it begins."""
    with store.read() as session:
        states = states_of(session, queries.runs.runs_named(session, [name]), {})
    for state in states.values():
        if state.state != "created":
            print(f"run {name} goes on; it was {state.state} since {state.since:%F %H:%M} UTC")


def _is_said_once(record: logging.LogRecord) -> bool:
    """False for Prefect's records of a flow or task run: each logs the same error, which the command prints once. In a
    terminal also for the line with which the failed stage ends, since the command's last line says the same."""
    if record.name.startswith(("prefect.flow_runs", "prefect.task_runs")):
        return False
    is_end = record.name == "orchestrator.reporting.run_log" and record.levelno >= logging.ERROR
    return not is_end or logs.format_of_process() == "json"
