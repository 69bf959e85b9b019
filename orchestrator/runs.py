"""Runs: made from a preset, gone on with, checked before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from core.config import ConfigError, RunConfig, load_config, parse_config
from core.errors import CoevoError
from core.trainer_settings import EasyR1Settings
from orchestrator.applications import refuse_missing, refuse_missing_engine
from orchestrator.held_out import load_benchmark
from orchestrator.home import MICRO_MODEL, PRESETS, Home
from orchestrator.ledger import Stage
from orchestrator.plan import plan, stages_of
from orchestrator.prompt_sets import trained_on
from services.inference.keys import keys_of
from storage import queries
from storage.checkpoints import publish, published_manifest
from storage.errors import StageHeld
from storage.rows import RunStatus
from storage.session import Store
from trainers.base import LOCAL_SIGNALS, refuse_unmet
from trainers.easyr1.fit import refuse_layout, refuse_unfit

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
    flow: Literal["co_evolve", "self_train"] = "co_evolve",
) -> RunConfig:
    """Make the run, or find it and let it go on for longer; its base model is published, all it names can be read.

    `flow` is the one that runs it: a run with a prompt set is self_train's, one without co_evolve's.

    Raises `ConfigError`, `BenchmarkError`, `PromptsError`, `RunError`, `TrainError`, `InferenceError`, `StoreError`
    before anything is written.
    """
    if iterations < 0:
        raise RunError(f"iterations: expected 1 or more, or 0 for what the preset says, got {iterations}")
    wanted = iterations
    if preset:
        more = {"iterations": iterations} if iterations else {}
        config = load_config(preset_path(preset), {**overrides, **more})
        _check_flow(config, flow, f"preset {preset}")
        _refuse_unfit(config)
        refuse_missing_engine(config.serving.applications)
        refuse_missing(config.serving.applications, [*config.solver.signals.served(config.solver.reward)])
        keys_of(config.solver.signals.services(config.solver.reward))
        keys_of(config.audit.services)
        load_benchmark(config.evaluation.benchmark)
        if config.early_stopping is not None:
            load_benchmark(config.early_stopping.benchmark)
        for prompts in (config.prompts, config.labelled.prompts if config.labelled else None):
            if prompts is not None:
                trained_on(config, prompts)
        _create(home, store, run, preset, config)
        wanted = config.iterations
    elif overrides:
        raise RunError("overrides: a run that exists keeps its settings; give a preset to make another run")
    with store.write() as session:
        row = queries.get_run(session, run)
        _check_flow(parse_config(row.config, source=f"run {run}"), flow, f"run {run}")
        if wanted > row.config["iterations"]:
            if row.status == "stopped":
                raise RunError(f"run {run}: iterations: it was stopped, by the guard or a person, and stays so")
            queries.set_iterations(session, run, wanted)
        return parse_config(queries.get_run(session, run).config, source=f"run {run}")


def _refuse_unfit(config: RunConfig) -> None:
    """Raise `TrainError` for what the run's trainer cannot do, of either role."""
    trainer, solver, challenger = config.trainer, config.solver, config.challenger
    if not isinstance(trainer, EasyR1Settings):
        refuse_unmet(solver.reward, LOCAL_SIGNALS, "the embedded trainer")
        return
    # From the second round on a prompt set's reference is the model before the first.
    rounds = config.prompts is not None and config.iterations > 1
    refuse_unfit("solver", solver.training, solver.reward, own_reference=rounds)
    refuse_layout(solver.training, solver.rollouts, trainer)
    if config.prompts is None and challenger.trained:
        refuse_unfit("challenger", challenger.training, challenger.reward)
        refuse_layout(challenger.training, challenger.rollouts, trainer)
    if config.labelled is not None:
        rollouts = config.labelled.training.rollouts_per_prompt or config.labelled.reward.rollouts
        refuse_unfit("labelled", config.labelled.training, config.labelled.reward)
        refuse_layout(config.labelled.training, rollouts, trainer)


def flow_of(config: RunConfig) -> Literal["co_evolve", "self_train"]:
    """The flow that runs it."""
    return "co_evolve" if config.prompts is None else "self_train"


def _check_flow(config: RunConfig, flow: str, what: str) -> None:
    if flow_of(config) != flow:
        has = "a prompt set" if config.prompts else "no prompt set"
        raise RunError(f"{what}: has {has}, so it is {flow_of(config)}'s, not {flow}'s")


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
    if iteration == 0:
        return
    if stage not in (known := stages_of(config, iteration)):
        raise RunError(f"start_stage: expected one of {', '.join(known)}, got {stage!r}")
    with store.read() as session:
        done = {(row.iteration, row.stage) for row in queries.stages_of(session, run) if row.status == "done"}
    for t in range(1, iteration):
        if (action := decision(store, run, t)["action"]) in ("pause", "stop"):
            why = "waits for a person's decision" if action == "pause" else "was stopped"
            raise RunError(f"run {run}: {why} after iteration {t}, so iteration {iteration} cannot begin")
    for t, earlier in plan(config):
        if (t, earlier) == (iteration, stage):
            return
        if (t, earlier) not in done:
            raise RunError(
                f"start_stage: run {run} cannot begin at {stage} of iteration {iteration}: {earlier} of iteration {t} "
                "is not done"
            )


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
        stages = (queries.find_stage(session, run=run, iteration=iteration, stage=s) for s in _DECIDE)
        done = [row.result for row in stages if row is not None and row.status == "done" and row.result]
    return {"action": "ignore", "back_to": None, "warnings": [], **(done[0] if done else {})}


def result_of(store: Store, run: str) -> str:
    """The Solver that a run came to: its last one, or the one that it went back to."""
    with store.read() as session:
        solvers = [c for c in queries.checkpoints_of(session, run) if c.role in ("base", "solver")]
        back = queries.rolled_back(session, run)
    if back and back[-1][0] >= solvers[-1].iteration:
        return back[-1][1]["solver"]
    return solvers[-1].id


def status_of(store: Store, run: str) -> RunStatus:
    with store.read() as session:
        return queries.get_run(session, run).status


def set_status(store: Store, run: str, status: RunStatus) -> None:
    with store.write() as session:
        queries.set_run_status(session, run, status)
