"""Runs: made from a preset, gone on with, checked before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.config import ConfigError, RunConfig, load_config, parse_config
from core.errors import CoevoError
from orchestrator.held_out import load_benchmark
from orchestrator.home import MICRO_MODEL, PRESETS, Home
from orchestrator.ledger import STAGES, Stage
from storage import queries
from storage.checkpoints import publish, published_manifest
from storage.errors import StageHeld
from storage.session import Store


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
) -> RunConfig:
    """Make the run, or find it and let it go on for longer; its base model is published, all it names can be read.

    Raises `ConfigError`, `BenchmarkError`, `RunError`, `StoreError` before anything is written.
    """
    if iterations < 0:
        raise RunError(f"iterations: expected 1 or more, or 0 for what the preset says, got {iterations}")
    wanted = iterations
    if preset:
        more = {"iterations": iterations} if iterations else {}
        config = load_config(preset_path(preset), {**overrides, **more})
        load_benchmark(config.evaluation.benchmark)
        _create(home, store, run, preset, config)
        wanted = config.iterations
    elif overrides:
        raise RunError("overrides: a run that exists keeps its settings; give a preset to make another run")
    with store.write() as session:
        if wanted > queries.get_run(session, run).config["iterations"]:
            queries.set_iterations(session, run, wanted)
        return parse_config(queries.get_run(session, run).config, source=f"run {run}")


def _create(home: Home, store: Store, run: str, preset: str, config: RunConfig) -> None:
    folder = MICRO_MODEL if config.base_model == "micro" else Path(config.base_model)
    if not (folder / "config.json").is_file():
        raise RunError(f"base_model: {folder} is not a folder with a Hugging Face model (it has no config.json)")
    with store.read() as session:
        new = run not in {row.name for row in queries.list_runs(session)}
    # Copied before the run is in the store: a run that is there has its base model, wherever a crash fell.
    base = publish(folder, home.checkpoints, run=run, role="base", iteration=0, step=0, parent=None) if new else None
    with store.write() as session:
        queries.create_run(session, name=run, config=config, preset=preset)
        if base is not None:
            queries.add_checkpoint(session, base, published_manifest(Path(base.path)))


def check_start(store: Store, run: str, config: RunConfig, iteration: int, stage: Stage) -> None:
    """Raise `RunError` unless everything before `stage` of `iteration` is done; iteration 0 asks for nothing."""
    if not 0 <= iteration <= config.iterations:
        raise RunError(f"start_iteration: expected 1 to {config.iterations}, got {iteration}")
    with store.read() as session:
        done = {(row.iteration, row.stage) for row in queries.stages_of(session, run) if row.status == "done"}
    before = [(t, s) for t in range(1, iteration) for s in STAGES]
    before += [(iteration, s) for s in STAGES[: STAGES.index(stage)]] if iteration else []
    for t, earlier in [(0, "evaluate"), *before] if iteration else []:
        if (t, earlier) not in done:
            raise RunError(
                f"start_stage: run {run} cannot begin at {stage} of iteration {iteration}: {earlier} of iteration {t} "
                "is not done"
            )


@contextmanager
def status_kept(store: Store, run: str) -> Iterator[None]:
    """The run's status while and after the block: running, then done, failed or cancelled."""
    _set(store, run, "running")
    try:
        yield
    except StageHeld:  # another process is at this run, and its status is that one's to say
        raise
    except Exception:
        _set(store, run, "failed")
        raise
    except BaseException:  # an interrupt, or Prefect ending the process of a cancelled flow run
        _set(store, run, "cancelled")
        raise
    _set(store, run, "done")


def _set(store: Store, run: str, status: Any) -> None:
    with store.write() as session:
        queries.set_run_status(session, run, status)
