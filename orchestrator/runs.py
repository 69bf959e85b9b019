"""Runs: made from a preset, gone on with, checked before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.errors import CoevoError
from core.settings.config import RunConfig, SelfTraining
from core.settings.parsing import ConfigError, load_config, parse_config
from core.types import Flow, Stage
from orchestrator.installation.home import PRESETS, Home
from orchestrator.plan import plan
from orchestrator.readiness import base_model, refuse_unready
from storage import queries
from storage.checkpoints import publish, published_manifest
from storage.errors import NotThere, StageHeld
from storage.rows import RunRow, RunStatus
from storage.session import Store

_DECIDE: tuple[Stage, ...] = ("ask_a_person", "check_health")  # whose word counts, the first that has one


class RunStopped(Exception):
    """The guard, early stopping or a person ended the run; not an error."""


class RunError(CoevoError):
    """A run that cannot be started as asked; the message names the parameter."""


def preset_path(name: str) -> Path:
    """The file of a preset: a name in deploy/runs, or a path. Raises `ConfigError` naming those that exist."""
    path = Path(name) if name.endswith(".toml") else PRESETS / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in PRESETS.glob("*.toml")))
        raise ConfigError(f"preset {name!r}: no such preset; there are {known}, or give the path of a TOML file")
    return path


def prepare(
    home: Home,
    store: Store,
    run: str,
    preset: str,
    iterations: int,
    overrides: Mapping[str, Any],
    flow: Flow = "co_evolve",
) -> RunConfig:
    """Make the run with its base model published, or find it and let it go on for longer.

    Raises what `startable` does, before anything is written.
    """
    config = startable(store, run, preset, iterations, overrides, flow)
    if preset:
        _create(home, store, run, preset, config)
    with store.write() as session:
        if config.iterations > queries.runs.get_run(session, run).config["iterations"]:
            queries.runs.set_iterations(session, run, config.iterations)
    return stored_config(store, run)


def startable(
    store: Store, run: str, preset: str, iterations: int, overrides: Mapping[str, Any], flow: Flow = "co_evolve"
) -> RunConfig:
    """The settings of a run that is to be made or to go on, once it is known that it can start. Nothing is written.

    `flow` is the one that runs it: a run with a prompt set is self_train's, one without co_evolve's. Raises
    `ConfigError`, `RunError`, `StoreError` and what `refuse_unready` raises.
    """
    if iterations < 0:
        raise RunError(f"iterations: expected 1 or more, or 0 for what the preset says, got {iterations}")
    if overrides and not preset:
        raise RunError("overrides: a run that exists keeps its settings; give a preset to make another run")
    queries.runs.refuse_name(run)
    row = _row(store, run)
    if preset:
        more = {"iterations": iterations} if iterations else {}
        config = load_config(preset_path(preset), {**overrides, **more})
    else:
        config = stored_config(store, run)
        config = config.model_copy(update={"iterations": iterations or config.iterations})
    _check_flow(config, flow, f"preset {preset}" if preset else f"run {run}")
    if row is not None:
        queries.runs.refuse_other_settings(row, config)
        has = row.config["iterations"]
        config = config.model_copy(update={"iterations": max(has, config.iterations)})
        if config.iterations > has and row.status == "stopped":
            raise RunError(f"run {run}: iterations: it was stopped, by the guard or a person, and stays so")
    refuse_unready(config, new=row is None)
    return config


def _check_flow(config: RunConfig, flow: str, what: str) -> None:
    if config.kind != flow:
        has = "a prompt set" if isinstance(config, SelfTraining) else "no prompt set"
        raise RunError(f"{what}: has {has}, so it is {config.kind}'s, not {flow}'s")


def _create(home: Home, store: Store, run: str, preset: str, config: RunConfig) -> None:
    base = None
    if _row(store, run) is None:
        # Copied before the run is in the store: a run that is there has its base model, wherever a crash fell.
        folder = base_model(config)
        base = publish(folder, home.checkpoints, run=run, role="base", iteration=0, step=0, parent=None)
    with store.write() as session:
        queries.runs.create_run(session, name=run, config=config, preset=preset)
        if base is not None:
            queries.checkpoints.add_checkpoint(session, base, published_manifest(Path(base.path)))


def _row(store: Store, run: str) -> RunRow | None:
    try:
        with store.read() as session:
            return queries.runs.get_run(session, run)
    except NotThere:
        return None


def stored_config(store: Store, run: str) -> RunConfig:
    """A run's settings as they were stored. Raises `StoreError` when there is no such run."""
    with store.read() as session:
        return parse_config(queries.runs.get_run(session, run).config, source=f"run {run}")


def check_start(store: Store, run: str, config: RunConfig, iteration: int) -> None:
    """Raise `RunError` unless everything before an iteration is done, and the run is to go on after it."""
    if not 1 <= iteration <= config.iterations:
        raise RunError(f"t: run {run}: expected an iteration from 1 to {config.iterations}, got {iteration}")
    with store.read() as session:
        done = {(row.iteration, row.stage) for row in queries.ledger.stages_of(session, run) if row.status == "done"}
    for t in range(1, iteration):
        if (action := decision(store, run, t)["action"]) in ("pause", "stop"):
            why = "waits for a person's decision" if action == "pause" else "was stopped"
            raise RunError(f"run {run}: {why} after iteration {t}, so iteration {iteration} cannot begin")
    for t, earlier in plan(config):
        if t < iteration and (t, earlier) not in done:
            raise RunError(f"t: run {run} cannot begin iteration {iteration}: {earlier} of iteration {t} is not done")


@contextmanager
def status_kept(store: Store, run: str) -> Iterator[None]:
    """The run's status while and after the block: running, then done, stopped, failed or cancelled."""
    set_status(store, run, "running")
    try:
        yield
    except RunStopped:
        set_status(store, run, "stopped")
        return
    except StageHeld:  # another process is at this run, and its status is that one's to say
        raise
    except Exception:
        set_status(store, run, "failed")
        raise
    except BaseException:  # an interrupt, or Prefect ending the process of a cancelled flow run
        set_status(store, run, "cancelled")
        raise
    set_status(store, run, "done")


def decision(store: Store, run: str, iteration: int) -> dict[str, Any]:
    """What was decided after an iteration, by a person where one was asked: `action`, and `back_to`."""
    with store.read() as session:
        stages = (queries.ledger.find_stage(session, run=run, iteration=iteration, stage=s) for s in _DECIDE)
        done = [row.result for row in stages if row is not None and row.status == "done" and row.result]
    return {"action": "ignore", "back_to": None, "warnings": [], **(done[0] if done else {})}


def result_of(store: Store, run: str) -> str:
    """The Solver that a run came to: its last one, or the one that it went back to."""
    with store.read() as session:
        solvers = [c for c in queries.checkpoints.checkpoints_of(session, run) if c.role in ("base", "solver")]
        back = queries.ledger.rolled_back(session, run)
    if back and back[-1][0] >= solvers[-1].iteration:
        return back[-1][1]["solver"]
    return solvers[-1].id


def status_of(store: Store, run: str) -> RunStatus:
    with store.read() as session:
        return queries.runs.get_run(session, run).status


def set_status(store: Store, run: str, status: RunStatus) -> None:
    with store.write() as session:
        queries.runs.set_run_status(session, run, status)
