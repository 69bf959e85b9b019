"""Creates runs from presets, continues them, and says what has become of a stored one: status, decisions, result.

What only the process needs that works on a run takes the `Run`; the rest takes the store and the run's name.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from core.processes.faultpoints import faultpoint
from core.settings.config import RunConfig
from core.settings.parsing import read_preset
from core.settings.trees import by_dotted_names
from core.types import Flow, Stage
from core.validation.faults import listed
from orchestrator.check.forks import ForkPoint, fork_point, unforkable
from orchestrator.check.needs import base_model
from orchestrator.check.presets import preset_path
from orchestrator.check.start import RunError, check_startable, find_run, length_of, why_no_longer
from orchestrator.costs import BudgetSpent
from orchestrator.installation.home import Home
from orchestrator.ledger import owner
from orchestrator.plan import plan
from orchestrator.run import Run
from services.prefect.server import is_away
from storage import queries
from storage.files.checkpoints import publish, published_manifest
from storage.rows import RunOrigin, RunStatus
from storage.session import DATABASE_ERRORS, Store


class RunStopped(Exception):
    """The guard, early stopping or a person ended the run; not an error."""


def prepare(
    home: Home,
    store: Store,
    run: str,
    preset: str,
    iterations: int,
    overrides: Mapping[str, Any],
    flow: Flow = "co_evolve",
    checked: RunConfig | None = None,
    from_run: str = "",
) -> RunConfig:
    """Create the run and publish its base model, which a fork has from the run `from_run`; or change the limits of an
    existing run (`queries.runs.LIMITS`).

    `checked` is what `check_startable` returned for these parameters, if this process has called it already. Raises
    what `check_startable` raises, before anything is written.
    """
    config = checked or check_startable(store, run, preset, iterations, overrides, flow, from_run=from_run)
    if (point := fork_point(from_run)) is not None:
        _create_fork(home, store, run, point, config, {**by_dotted_names(overrides), **length_of(iterations)})
        faultpoint("run created")
    elif preset:
        given = {**by_dotted_names(overrides), **length_of(iterations)}
        origin, base = RunOrigin(read_preset(preset_path(preset)), given), None
        if find_run(store, run) is None:
            # The model is copied before the run is stored, so that every stored run has its base model, even after a
            # crash.
            folder = base_model(config)
            base = publish(folder, home.checkpoints, run=run, role="base", iteration=0, step=0, parent=None)
            faultpoint("base model published")
        with store.write() as session:
            queries.runs.create_run(session, name=run, config=config, preset=preset, origin=origin)
            if base is not None:
                queries.checkpoints.add_checkpoint(session, base, published_manifest(Path(base.path)))
        faultpoint("run created")
    with store.write() as session:
        queries.runs.set_limits(session, run, config)
    return stored_config(store, run)


def _create_fork(
    home: Home, store: Store, run: str, point: ForkPoint, config: RunConfig, given: Mapping[str, Any]
) -> None:
    """Create a run that begins after an iteration of another one. Raises `RunError` if what it needs of the other run
    has been removed since this was checked."""
    with store.write() as session:
        of = queries.runs.get_run(session, point.run)
        checkpoints = queries.checkpoints.checkpoints_of(session, point.run)
        queries.checkpoints.lock(session, [row.id for row in checkpoints])  # from now on, their files are kept
        if faults := [*unforkable(session, run, point, config, home)]:
            raise RunError(listed(faults))
        made_from = queries.runs.origin_of(session, point.run)
        origin = RunOrigin(made_from.preset_settings, {**(made_from.overrides or {}), **given})
        queries.runs.create_run(session, name=run, config=config, preset=of.preset, origin=origin)
        queries.forks.add(session, run, queries.forks.makers(session, point.run, point.last))


def stored_config(store: Store, run: str) -> RunConfig:
    """The settings that are stored with a run. Raises `StoreError` when there is no such run."""
    with store.read() as session:
        return queries.runs.config_of_run(session, run)


def check_start(run: Run, iteration: int) -> None:
    """Raise `RunError` unless all stages before an iteration are done and no decision keeps the run from continuing."""
    with run.store.read() as session:
        begins_at = queries.forks.begins_at(session, run.name)
    first, last = max(1, begins_at), run.config.iterations
    if not first <= iteration <= last:
        raise RunError(f"t: run {run}: expected an iteration from {first} to {last}, got {iteration}")
    done = _done(run.store, run.name)
    for t in range(1, iteration):
        if (action := decision(run.store, run.name, t)["action"]) in ("pause", "stop"):
            reason = "waits for a person's decision" if action == "pause" else "was stopped"
            raise RunError(f"run {run}: {reason} after iteration {t}, so iteration {iteration} cannot begin")
    for t, stage in plan(run.config, begins_at):
        if t < iteration and (t, stage) not in done:
            raise RunError(f"t: run {run} cannot begin iteration {iteration}: {stage} of iteration {t} is not done")


@contextmanager
def status_kept(run: Run) -> Iterator[None]:
    """Set the run's status to running, and after the block to done, stopped, out_of_budget, failed or cancelled.

    To be used in `ledger.run_held`. The status is left alone once another process has taken over the run: that process
    sets it. It also stays as it is if Prefect does not answer any more: nothing has failed, and nobody works on the
    run, so it reads as interrupted.
    """
    set_status(run.store, run.name, "running")
    end = partial(set_status_if_held, run)
    try:
        yield
    except RunStopped:
        end("stopped")
        return
    except BudgetSpent:
        end("out_of_budget")
        raise
    except Exception as error:
        if not (isinstance(error, httpx.HTTPError) and is_away(error)):
            with suppress(*DATABASE_ERRORS):
                end("failed")
        raise
    except BaseException:  # an interrupt, or Prefect ending the process of a cancelled flow run
        end("cancelled")
        raise
    faultpoint("run ended")
    end("done")


def set_status_if_held(run: Run, status: RunStatus) -> bool:
    """Set the status if this process still has the run, though its lease may have expired; returns whether it has it.

    Without a lease, another process has taken the run over, and may have ended it already.
    """
    with run.store.write() as session:
        lease = queries.run_leases.leases(session).get(run.name)
        is_held = lease is not None and lease.owner == owner()
        if is_held:
            queries.runs.set_run_status(session, run.name, status)
    return is_held


def ended_as(store: Store, run: str) -> RunStatus | None:
    """How a run has ended by its stages, whatever became of its process; None if something is left to do."""
    done = _done(store, run)
    with store.read() as session:
        begins_at = queries.forks.begins_at(session, run)
    for t, stage in plan(stored_config(store, run), begins_at):
        if (t, stage) not in done:
            return None
        if stage == "check_health" and (action := decision(store, run, t)["action"]) in ("pause", "stop"):
            return "stopped" if action == "stop" else None
    return "done"


def _done(store: Store, run: str) -> set[tuple[int, Stage]]:
    with store.read() as session:
        return {(row.iteration, row.stage) for row in queries.ledger.stages_of(session, run) if row.status == "done"}


def decision(store: Store, run: str, iteration: int) -> dict[str, Any]:
    """The decision after an iteration, a person's if one was asked: `action`, `back_to` and `warnings`."""
    with store.read() as session:
        return queries.ledger.decision(session, run, iteration)


def result_of(store: Store, run: str) -> str:
    """The id of a run's resulting Solver: the last one, or the one that the run went back to."""
    with store.read() as session:
        solvers = queries.checkpoints.solvers_of(session, run)
        roll_backs = queries.ledger.rolled_back(session, run)
    if roll_backs and roll_backs[-1][0] >= solvers[-1].iteration:
        return roll_backs[-1][1]["solver"]
    return solvers[-1].id


def clear(run: Run) -> None:
    """Remove what an ended run no longer needs: work in progress, and, if no round can follow, AdamW's moments."""
    shutil.rmtree(run.home.work / run.name, ignore_errors=True)
    with run.store.read() as session:
        has_forks = bool(queries.forks.forks_of(session, run.name))  # which may need the moments
    if why_no_longer(run.config, status_of(run.store, run.name)) is not None and not has_forks:
        shutil.rmtree(run.home.optimisers / run.name, ignore_errors=True)


def status_of(store: Store, run: str) -> RunStatus:
    with store.read() as session:
        return queries.runs.get_run(session, run).status


def set_status(store: Store, run: str, status: RunStatus) -> None:
    with store.write() as session:
        queries.runs.set_run_status(session, run, status)
