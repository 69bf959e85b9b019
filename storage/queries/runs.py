"""Runs. A run is created once from a configuration, which never changes, except that `iterations` may grow."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime

from sqlalchemy import delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from core.methods import METHODS
from core.settings.config import RunConfig
from core.settings.parsing import ConfigError, parse_config
from core.settings.provenance import differing
from core.validation.suggestions import did_you_mean
from storage.errors import NotThere, StoreError, UnreadableSettings
from storage.models import Checkpoints, Questions, RunLeases, Runs
from storage.queries.tables import columns, find_row, find_rows, insert_new, table_of
from storage.rows import Run, RunDetail, RunOrigin, RunStatus

# A run's name is part of keys and of paths.
# Settings that do not change what a run computes, only how far it goes, what stays of it and who shows it.
LIMITS = ("iterations", "checkpoints", "budget", "rates", "trackers")
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def create_run(
    session: Session,
    *,
    name: str,
    config: RunConfig,
    preset: str | None = None,
    origin: RunOrigin | None = None,
) -> RunDetail:
    """Create a run, or return the existing one with this name and configuration; its `iterations` may differ.

    `origin` is what the configuration was made from, if it is known.

    Raises `StoreError` when the name is not valid, or when the run has another configuration. The message names the
    fields that differ.
    """
    refuse_name(name)
    dump, now = config.model_dump(mode="json"), datetime.now(UTC)
    row = {"name": name, "preset": preset, "seed": config.seed, "status": "created", "config": dump}
    row |= asdict(origin or RunOrigin(None, None)) | {"tags": [], "note": "", "noted_by": None, "noted_at": None}
    insert_new(session, Runs, [{**row, "created_at": now, "updated_at": now}])
    stored = get_run(session, name)
    refuse_other_settings(stored, config)
    return stored


def refuse_name(name: str) -> None:
    """Raise `StoreError` when `name` is not valid as the name of a run."""
    if not RUN_NAME.fullmatch(name):
        raise StoreError(
            f"run name: expected at most 64 letters, digits and . _ -, first a letter or digit, got {name!r}"
        )


def refuse_other_settings(stored: RunDetail, config: RunConfig) -> None:
    """Raise `StoreError` when the configuration of a run differs from `config` in more than its limits (`LIMITS`).

    The message names the fields. A difference may come from a preset that was changed after the run was created.
    """
    known = config_from(stored).model_dump(mode="json", exclude={*LIMITS})
    requested = config.model_dump(mode="json", exclude={*LIMITS})
    if known != requested:
        before, now = differing({"stored": known, "requested": requested}).values()
        names = sorted({*before, *now})
        differences = "; ".join(f"{name} is {before.get(name)!r}, got {now.get(name)!r}" for name in names)
        raise StoreError(f"run {stored.name}: exists with another configuration: {differences}. Choose another name")


def get_run(session: Session, name: str) -> RunDetail:
    row = find_row(session, Runs, RunDetail, Runs.name == name)
    if row is None:
        names = session.scalars(select(Runs.name).order_by(Runs.created_at.desc()).limit(1_000)).all()
        known = ", ".join(names[:10]) or "none"
        raise NotThere(f"run {name}: no such run{did_you_mean(name, names)}; the store has {known}")
    return row


def config_of_run(session: Session, name: str) -> RunConfig:
    """The settings of a run. Raises `NotThere`, and `UnreadableSettings` when this process does not know them."""
    return config_from(get_run(session, name))


def config_from(run: RunDetail) -> RunConfig:
    """The settings of a run; those that are newer than the run have their defaults. Raises `UnreadableSettings`."""
    try:
        return parse_config(run.config, f"run {run.name}")
    except ConfigError as error:
        reward = run.config.get("solver", {}).get("reward", {}).get("type")
        if reward is None or reward in METHODS:
            raise UnreadableSettings(str(error)) from error
        raise UnreadableSettings(
            f"run {run.name}: solver.reward.type: this process does not know the reward {reward!a}: the package that "
            "has it is not installed, or was installed after the process was started; install it and restart "
            "the API and the flow runner"
        ) from error


def origin_of(session: Session, name: str) -> RunOrigin:
    """What the configuration of an existing run was made from."""
    row = session.execute(select(*columns(Runs, RunOrigin)).where(Runs.name == name)).one()
    return RunOrigin(*row)


def refuse_missing_iteration(session: Session, name: str, iteration: int) -> None:
    """Raise `NotThere` when there is no such run, when it is not planned to have this iteration, or when the iteration
    is 0 and is only the evaluation of the base model. In a self-training run, iteration 0 has the given prompts."""
    run = get_run(session, name)
    if iteration > run.iterations:
        listed = f"the run has iterations 0 to {run.iterations}"
        raise NotThere(f"run {name}, iteration {iteration}: no such iteration; {listed}")
    if iteration == 0 and run.config.get("kind") == "co_evolve":
        raise NotThere(
            f"run {name}, iteration 0: it is the evaluation of the base model, and has no questions and no training; "
            "the first iteration with questions is 1"
        )


def refuse_iteration_without_questions(session: Session, name: str, iteration: int) -> None:
    """Raise `NotThere` as `refuse_missing_iteration` does, and for a self-training run's iterations after 0."""
    refuse_missing_iteration(session, name, iteration)
    if iteration > 0 and get_run(session, name).config.get("kind") == "self_train":
        raise NotThere(f"run {name}, iteration {iteration}: it has no questions; the run's prompts are in iteration 0")


def list_runs(session: Session) -> list[RunDetail]:
    """All runs, the newest first."""
    return find_rows(session, Runs, RunDetail, order=[Runs.created_at.desc(), Runs.name])


def runs_named(session: Session, names: Iterable[str] | None = None) -> dict[str, Run]:
    """Name -> run, without the configurations; names without a run are left out. None: all runs."""
    named = [] if names is None else [Runs.name.in_([*names])]
    return {run.name: run for run in find_rows(session, Runs, Run, *named)}


def set_run_status(session: Session, name: str, status: RunStatus) -> None:
    get_run(session, name)
    session.execute(update(table_of(Runs)).where(Runs.name == name).values(status=status, updated_at=datetime.now(UTC)))


def too_few_iterations(run: Run | RunDetail, iterations: int) -> str | None:
    """What is wrong with a number of iterations that is lower than the run's; None if nothing is."""
    if iterations >= run.iterations:
        return None
    has = f"{run.iterations} iteration{'' if run.iterations == 1 else 's'}"
    return f"expected at least {run.iterations}, got {iterations}; {run.name} has {has}, and the number can only grow"


def set_limits(session: Session, name: str, config: RunConfig) -> None:
    """Set the limits of a run (`LIMITS`) to those of a configuration. Raises `StoreError` when its number of iterations
    is lower than before."""
    run = get_run(session, name)
    if (problem := too_few_iterations(run, config.iterations)) is not None:
        raise StoreError(f"run {name}: iterations: {problem}")
    limits = config.model_dump(mode="json", include={*LIMITS})
    if any(run.config.get(limit) != value for limit, value in limits.items()):
        values = {"config": {**run.config, **limits}, "updated_at": datetime.now(UTC)}
        session.execute(update(table_of(Runs)).where(Runs.name == name).values(values))


def delete_run(session: Session, name: str) -> None:
    """Delete a run and all its rows. The caller must remove its files (checkpoints, texts).

    Raises `StoreError` when rows of another run refer to it or to its checkpoints.
    """
    get_run(session, name)
    try:
        # Questions refer to checkpoints, so they are deleted first. All other tables cascade.
        for model in (Questions, Checkpoints):
            session.execute(delete(table_of(model)).where(model.run == name))
        session.execute(delete(table_of(Runs)).where(Runs.name == name))
        session.execute(delete(table_of(RunLeases)).where(RunLeases.run == name))  # it has no foreign key to `runs`
    except IntegrityError as error:
        raise StoreError(f"run {name}: cannot be deleted: rows of another run refer to it") from error
