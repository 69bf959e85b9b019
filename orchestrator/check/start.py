"""May a run start, and with which settings? Finds everything that keeps it from being created or continued.

`startable` is the one function for that: `coevo check` shows what it finds; `coevo run`, before it looks for services,
and a flow that Prefect started, before it writes anything, refuse with it. The REST API asks for the part that it can
know (`refusals.refuse_as_the_api_can`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.errors import CoevoError
from core.settings.config import RunConfig, SelfTraining
from core.settings.parsing import OVERRIDES, ConfigError, load_despite_faults, parse_config
from core.settings.trees import with_overrides
from core.types import Flow
from core.validation.faults import Fault, listed
from orchestrator.check.forks import FROM, fork_point, forked_config, unforkable
from orchestrator.check.presets import preset_path
from orchestrator.check.refusals import unready
from orchestrator.installation.home import Home, home
from services.prefect.flow_runs import DEPLOYMENTS, EXISTING
from storage import queries
from storage.errors import NotThere, StoreError
from storage.rows import RunDetail, RunStatus
from storage.session import Store, open_store


class RunError(CoevoError):
    """A run that cannot be started with these parameters; the message names the parameter."""


def length_of(iterations: int) -> dict[str, int]:
    """The override of a number of iterations, where 0 is that of the preset."""
    return {"iterations": iterations} if iterations > 0 else {}


def check_startable(
    store: Store | None,
    run: str,
    preset: str,
    iterations: int,
    overrides: Mapping[str, Any],
    flow: Flow | None = None,
    overrides_are: str = OVERRIDES,
    from_run: str = "",
) -> RunConfig:
    """Check whether a run can be created or continued, and return its settings. Nothing is written.

    The parameters are those of `startable`. Raises `RunError` with all faults, and `StoreError` if there is neither a
    preset nor a run of this name.
    """
    config, faults = startable(store, run, preset, iterations, overrides, flow, overrides_are, from_run)
    if config is None or faults:
        raise RunError(listed(faults))
    return config


def startable(
    store: Store | None,
    run: str,
    preset: str,
    iterations: int,
    overrides: Mapping[str, Any],
    flow: Flow | None = None,
    overrides_are: str = OVERRIDES,
    from_run: str = "",
    *,
    fetch: bool = True,
) -> tuple[RunConfig | None, list[Fault]]:
    """The settings of a run that shall start, None if they cannot be read, and everything that keeps it from starting.

    `store` is None if there is none yet. `from_run` names where a fork begins, as `demo:3`, whose settings are those of
    the other run; it has no preset then. `flow` is the flow that will run it: self_train for a run with a prompt set,
    co_evolve for one without; None if the run's own is taken. `overrides_are` is what faults call the overrides.
    Without `fetch`, no benchmark is fetched. Raises `StoreError` as `check_startable`.
    """
    row = None if store is None else find_run(store, run)
    if from_run:
        config, faults = _forked(store, run, from_run, preset, iterations, overrides, overrides_are)
    elif preset:
        config, faults = _requested(run, preset, iterations, overrides, overrides_are)
    else:
        config, faults = _continued(store, run, iterations, overrides, overrides_are)
    if config is None:
        if preset and not from_run:
            faults += _others(preset, iterations, overrides, faults, new=row is None, fetch=fetch)
        return None, faults
    if flow not in (None, config.kind):
        prompt_set = "a prompt set" if isinstance(config, SelfTraining) else "no prompt set"
        remedy = f"in Prefect, start it with the deployment {DEPLOYMENTS[config.kind]}"
        faults.append(
            Fault("flow", f"{flow}", f"{config.kind}, since {from_run or preset or run} has {prompt_set}", remedy)
        )
    if row is not None:
        try:
            queries.runs.refuse_other_settings(row, config)
        except StoreError as error:
            faults.append(Fault("name", str(error)))
        reason = why_no_longer(config, row.status)
        if config.iterations > row.iterations and reason is not None:
            got, expected = f"{config.iterations}", f"at most {row.iterations}"
            faults.append(Fault("iterations", got, expected, f"{reason}, so run {row.name} cannot go on for longer"))
        # Without a preset, an override may be the number that was asked for. A preset's own number asks for nothing.
        asked = iterations if preset or from_run else config.iterations
        if asked > 0 and (problem := queries.runs.too_few_iterations(row, asked)) is not None:
            faults.append(Fault("iterations", problem))
        config = config.model_copy(update={"iterations": max(row.iterations, config.iterations)})
    return config, [*faults, *unready(config, new=row is None and not from_run, fetch=fetch)]


def _requested(
    run: str, preset: str, iterations: int, overrides: Mapping[str, Any], overrides_are: str
) -> tuple[RunConfig | None, list[Fault]]:
    """The settings that a preset and the overrides give, None if they cannot be read, and the faults that need neither
    a store nor a look at this machine to be seen."""
    faults = [*_wrong_name(run), *_wrong_iterations(iterations)]
    length = length_of(iterations)
    try:
        config, wrong = load_despite_faults(preset_path(preset), {**overrides, **length}, overrides_are)
    except ConfigError as error:
        return None, [*faults, *(error.faults or [Fault("preset", str(error).removeprefix("preset "))])]
    for fault in wrong:
        if fault.setting in length:
            faults.append(replace(fault, source=None))  # a number of iterations was no override
        elif fault.source or fault.setting == "preset":
            faults.append(fault)
        else:
            faults.append(replace(fault, source=f"preset {preset}"))
    return None if wrong else config, faults


# Tables of settings that are checked together. A wrong setting may cause faults of the others.
_CHECKED_TOGETHER = (
    {"solver", "challenger", "labelled", "trainer", "serving", "iterations", "kind"},
    {"evaluation", "early_stopping", "prompts", "labelled", "kind"},
)


def _others(
    preset: str, iterations: int, overrides: Mapping[str, Any], wrong: Sequence[Fault], *, new: bool, fetch: bool
) -> Iterator[Fault]:
    """What else keeps a run from starting whose settings are `wrong`, except faults that these may have caused."""
    try:
        config, _ = load_despite_faults(preset_path(preset), {**overrides, **length_of(iterations)})
    except ConfigError:
        return
    tables = {fault.table for fault in wrong}
    doubted = tables.union(*(group for group in _CHECKED_TOGETHER if group & tables))
    if config is not None:
        yield from (fault for fault in unready(config, new, fetch=fetch) if fault.table not in doubted)


def _continued(
    store: Store | None, run: str, iterations: int, overrides: Mapping[str, Any], overrides_are: str
) -> tuple[RunConfig | None, list[Fault]]:
    """As `_requested`, for a run that is there and is continued with its own settings, except its limits."""
    faults, limits = _wrong_iterations(iterations), queries.runs.LIMITS
    if fixed := [name for name in overrides if name.partition(".")[0] not in limits]:
        *first, last = limits[1:]
        expected = f"only settings of {', '.join(first)} and {last}, since an existing run keeps its others"
        faults.append(Fault(overrides_are, ", ".join(fixed), expected, "another run can have other settings"))
        return None, faults
    if store is None:
        raise StoreError(f"run {run}: no such run; there is no store yet")
    with store.read() as session:
        stored = queries.runs.get_run(session, run).config
    try:
        tree = with_overrides(stored, overrides)
        config = parse_config(tree, f"run {run}", overrides, overrides_are)
    except ConfigError as error:
        return None, [*faults, *(error.faults or [Fault("run", str(error))])]
    return config.model_copy(update={"iterations": max(iterations, 0) or config.iterations}), faults


def _forked(
    store: Store | None,
    run: str,
    from_run: str,
    preset: str,
    iterations: int,
    overrides: Mapping[str, Any],
    overrides_are: str,
) -> tuple[RunConfig | None, list[Fault]]:
    """As `_requested`, for a run that begins after an iteration of another one."""
    faults = [*_wrong_name(run), *_wrong_iterations(iterations)]
    if preset:
        expected = f"none with {FROM}, since a fork has the other run's settings"
        remedy = f"in Prefect's form, choose {EXISTING!r}" if overrides_are == OVERRIDES else None
        faults.append(Fault("preset", f"{preset!r}", expected, remedy))
    if (point := fork_point(from_run)) is None:
        faults.append(Fault(FROM, f"{from_run!r}", "RUN:T, another run and one of its iterations, such as demo:3"))
        return None, faults
    if store is None:
        raise StoreError(f"run {point.run}: no such run; there is no store yet")
    with store.read() as session:
        try:
            config = forked_config(session, run, point, iterations, overrides, overrides_are)
        except ConfigError as error:
            return None, [*faults, *(error.faults or [Fault(FROM, str(error))])]
        return config, [*faults, *unforkable(session, run, point, config, home())]


def _wrong_name(run: str) -> Iterator[Fault]:
    try:
        queries.runs.refuse_name(run)
    except StoreError as error:
        yield Fault("name", str(error).removeprefix("run name: "))


def _wrong_iterations(iterations: int) -> list[Fault]:
    if iterations >= 0:
        return []
    return [Fault("iterations", f"{iterations}", "1 or more, or 0 for what the preset says")]


def why_no_longer(config: RunConfig, status: RunStatus) -> str | None:
    """The reason why a run can get no more iterations than it has; None if it can."""
    if status == "stopped":
        return "the guard, early stopping or a person stopped this run"
    if config.rounds_are_one_training and config.solver.training.schedule == "cosine":
        return "the cosine of its learning rate ends with the last round"
    return None


def store_of(home: Home) -> Store | None:
    """The home's store; None if there is none yet. Raises `StoreError` for one that cannot be used."""
    try:
        return open_store(home.database)
    except NotThere:
        return None


def find_run(store: Store, run: str) -> RunDetail | None:
    """A run of the store; None if it has none of this name."""
    try:
        with store.read() as session:
            return queries.runs.get_run(session, run)
    except NotThere:
        return None
