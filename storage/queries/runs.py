"""Runs: made once from a configuration, which stays as it is but for the number of iterations, which may grow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import and_, delete, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from core.settings.config import RunConfig
from core.settings.parsing import parse_config
from storage.errors import NotThere, StoreError
from storage.models import Checkpoints, Questions, RunLeases, Runs
from storage.queries.tables import columns, insert_new, table_of
from storage.rows import RunRow, RunStatus

# A run's name is part of keys and of paths.
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def create_run(session: Session, *, name: str, config: RunConfig, preset: str | None = None) -> RunRow:
    """Create a run, or return the one that has this name and this configuration, be it for more or fewer iterations.

    Raises `StoreError` when the name cannot be one, or when its run has another configuration (naming the fields).
    """
    refuse_name(name)
    dump, now = config.model_dump(mode="json"), datetime.now(UTC)
    row = {"name": name, "preset": preset, "seed": config.seed, "status": "created", "config": dump}
    insert_new(session, Runs, [{**row, "created_at": now, "updated_at": now}])
    stored = get_run(session, name)
    refuse_other_settings(stored, config)
    return stored


def refuse_name(name: str) -> None:
    """Raise `StoreError` when a run cannot be called so."""
    if not RUN_NAME.fullmatch(name):
        raise StoreError(
            f"run name: expected at most 64 of A-Z a-z 0-9 . _ -, the first a letter or digit, got {name!r}"
        )


def refuse_other_settings(stored: RunRow, config: RunConfig) -> None:
    """Raise `StoreError`, naming the fields, when a run has another configuration, be it for more or fewer iterations.

    A preset may have changed since the run was made from it.
    """
    # Read again: settings that are newer than the run have their defaults.
    known = parse_config(stored.config, f"run {stored.name}").model_dump(mode="json")
    given = config.model_dump(mode="json")
    differing = "; ".join(_differences({**known, "iterations": config.iterations}, given))
    if differing:
        raise StoreError(f"run {stored.name}: exists with another configuration: {differing}. Choose another name")


def _differences(stored: Any, given: Any, path: str = "") -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(given, dict):
        for key in sorted({*stored, *given}):
            yield from _differences(stored.get(key), given.get(key), f"{path}.{key}" if path else key)
    elif stored != given:
        yield f"{path} is {stored!r}, got {given!r}"


def get_run(session: Session, name: str) -> RunRow:
    row = session.execute(select(*columns(Runs, RunRow)).where(Runs.name == name)).one_or_none()
    if row is None:
        known = ", ".join(session.scalars(select(Runs.name).order_by(Runs.created_at.desc()).limit(10)))
        raise NotThere(f"run {name}: no such run; the store has {known or 'none'}")
    return RunRow(*row)


def list_runs(session: Session) -> list[RunRow]:
    """All runs, the newest first."""
    ordered = select(*columns(Runs, RunRow)).order_by(Runs.created_at.desc(), Runs.name)
    return [RunRow(*row) for row in session.execute(ordered)]


def runs_changed(session: Session, names: Iterable[str]) -> dict[str, datetime]:
    """When those of the runs that are there were changed last: their status, or for how long they go on."""
    wanted = select(Runs.name, Runs.updated_at).where(Runs.name.in_([*names]))
    return {row.name: row.updated_at for row in session.execute(wanted)}


def page_of_runs(session: Session, *, after: tuple[datetime, str] | None, limit: int) -> list[RunRow]:
    """A page of the runs, the newest first; `after` is when the last one of the page before was made, and its name."""
    statement = select(*columns(Runs, RunRow)).order_by(Runs.created_at.desc(), Runs.name).limit(limit)
    if after is not None:
        made, name = after
        statement = statement.where(or_(Runs.created_at < made, and_(Runs.created_at == made, Runs.name > name)))
    return [RunRow(*row) for row in session.execute(statement)]


def set_run_status(session: Session, name: str, status: RunStatus) -> None:
    get_run(session, name)
    session.execute(update(table_of(Runs)).where(Runs.name == name).values(status=status, updated_at=datetime.now(UTC)))


def set_iterations(session: Session, name: str, iterations: int) -> None:
    """Let a run go on for longer. Raises `StoreError` when that would be shorter."""
    config = get_run(session, name).config
    if iterations < config["iterations"]:
        raise StoreError(f"run {name}: iterations: expected at least {config['iterations']}, got {iterations}")
    values = {"config": {**config, "iterations": iterations}, "updated_at": datetime.now(UTC)}
    session.execute(update(table_of(Runs)).where(Runs.name == name).values(values))


def delete_run(session: Session, name: str) -> None:
    """Delete a run and all its rows; its files (checkpoints, texts) are the caller's to remove.

    Raises `StoreError` when another run builds on its checkpoints.
    """
    get_run(session, name)
    try:
        # Before what they refer to; the rest cascades.
        for model in (Questions, Checkpoints):
            session.execute(delete(table_of(model)).where(model.run == name))
        session.execute(delete(table_of(Runs)).where(Runs.name == name))
        session.execute(delete(table_of(RunLeases)).where(RunLeases.run == name))  # bound to no run
    except IntegrityError as error:
        raise StoreError(f"run {name}: cannot be deleted: rows of another run refer to its checkpoints") from error
