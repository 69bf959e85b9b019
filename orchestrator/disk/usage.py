"""What takes the disk: the files of each run by kind, those that no run has, and the database."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.disk.files import EVALUATIONS, KINDS, Kind, entries, folder_of, half_written_run, size_of
from orchestrator.disk.garbage import garbage
from orchestrator.installation.home import Home
from storage import queries
from storage.queries.sizes import DatabaseSize
from storage.session import Store


@dataclass(frozen=True, slots=True)
class RunUsage:
    """Bytes of a run's files by kind, and those of each checkpoint, as ROLE/ITERATION. `stored`: it is in the store."""

    run: str
    stored: bool
    bytes: int
    kinds: dict[Kind, int]
    checkpoints: dict[str, int]
    rows: dict[str, int] | None  # by table; None unless only this run is asked for


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes on the disk. `other` has the files in the home that are no run's, by folder. A file with several hard links
    is counted once, where it comes first. `garbage` is what `coevo store gc` would free now; it is part of `total`.

    `database` is part of `total` if it is a file in the home.
    """

    home: Path
    runs: list[RunUsage]
    other: dict[str, int]
    total: int
    garbage: int
    address: str  # of the database, without the password
    database: DatabaseSize


def usage(home: Home, store: Store) -> Usage:
    """What takes the disk of the home and of its database, by run."""
    seen = set[tuple[int, int]]()
    with store.read() as session:
        stored = [run.name for run in queries.runs.list_runs(session)]
        database = queries.sizes.database_size(session)
    named = {path.name for kind in KINDS for path in entries(folder_of(home, kind))}
    unknown = {name for name in named - {*stored} if queries.runs.RUN_NAME.fullmatch(name)}
    runs = [_of_run(home, name, name in stored, seen) for name in [*stored, *sorted(unknown)]]
    # What no run has: the texts and exports of evaluations, then the entries of the home, such as the database's file.
    other = {"evaluations": sum(size_of(folder / EVALUATIONS, seen) for folder in (home.texts, home.exports))}
    other |= {path.name: size_of(path, seen) for path in entries(home.path)}
    other = {name: size for name, size in other.items() if size}
    total = sum(run.bytes for run in runs) + sum(other.values())
    freed = sum(item.bytes for item in garbage(home, store))
    return Usage(home.path, runs, other, total, freed, store.address, database)


def usage_of(home: Home, store: Store, run: str) -> RunUsage:
    """What one run takes. Raises `NotThere` if the store has no such run."""
    with store.read() as session:
        queries.runs.get_run(session, run)
        rows = queries.run_rows.rows_of_run(session, run)
    return _of_run(home, run, True, set(), rows)


def _of_run(
    home: Home, run: str, stored: bool, seen: set[tuple[int, int]], rows: dict[str, int] | None = None
) -> RunUsage:
    folder = home.checkpoints / run
    checkpoints = {
        f"{role.name}/{path.name}": size_of(path, seen)
        for role in entries(folder)
        for path in sorted(entries(role), key=lambda path: (len(path.name), path.name))
    }
    kinds = {kind: size_of(folder_of(home, kind) / run, seen) for kind in KINDS}
    kinds["checkpoints"] += sum(checkpoints.values())  # the rest is what the folders themselves take
    for kind in ("checkpoints", "optimisers"):
        half_written = [path for path in entries(folder_of(home, kind)) if half_written_run(path) == run]
        kinds[kind] += sum(size_of(path, seen) for path in half_written)
    return RunUsage(run, stored, sum(kinds.values()), kinds, checkpoints, rows)
