"""Finds and removes the files in the home that crashes and old runs left, and that no row refers to.

Garbage is:

- a run's folder of checkpoints, optimiser's moments, texts, work in progress, exports or trackers' files, if the store
  has no such run;
- a checkpoint without a row, or with a row that says "files removed"; moments that no stage's result names;
- folders into which a checkpoint was copied, or that were being removed, when a process died;
- parts of a stage's texts, and its work in progress, once the stage is done; the work of a run that is done or stopped;
- texts and exports of an evaluation that the store does not have;
- exported files that were not completed, that a later export of the same rows has replaced, or whose run is not in the
  store.

What a live process may be writing is left alone. A run's files are removed only while this process holds the lease on
the run, so no process works on it. Whatever changed lately is left too, because exports and evaluations have no lease.
Only the folders of `orchestrator.disk.files.KINDS` are looked at, and in them only names that coevo gives.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orchestrator.disk.files import (
    EVALUATIONS,
    HALF_REMOVED,
    KINDS,
    ROLES,
    DiskError,
    Kind,
    discard,
    entries,
    exports_of_runs,
    folder_of,
    half_written_run,
    last_change,
    size_of,
)
from orchestrator.installation.home import Home
from orchestrator.ledger import is_alive, owner, run_held
from storage import queries
from storage.errors import RunHeld
from storage.exports.files import OF_RUNS, manifest_path_of
from storage.queries.runs import RUN_NAME
from storage.rows import RunStatus
from storage.session import Store

PATIENCE = timedelta(hours=24)  # what changed later than this ago is left alone
_ENDED: tuple[RunStatus, ...] = ("done", "stopped")  # a run that has these has no stage that was cut off
_ITERATION = re.compile(r"0|[1-9][0-9]{0,8}")
_EVALUATION = re.compile(r"(?P<key>[0-9a-f]{16})(?:\.(?:parquet|parts|tmp))?")
_HALF_WRITTEN_TEXTS = re.compile(r"[0-9a-f]{16}\.parquet\.[0-9a-f]{32}\.part")  # of `core.files.replacing`
_EXPORT = re.compile(r"(?P<rows>.+)-(?P<version>[0-9a-f]{12})\.(?P<format>[a-z]+)(?:\.manifest\.json)?")


@dataclass(frozen=True, slots=True)
class Garbage:
    """A file or a folder that nothing refers to. `run` is whose it was; None: no run's."""

    path: Path
    run: str | None
    why: str
    bytes: int


@dataclass(frozen=True, slots=True)
class _Top:
    """An entry of one of the home's folders, such as checkpoints/RUN. `below`: its entries, and their entries."""

    kind: Kind
    path: Path
    run: str | None
    below: list[Path]


@dataclass(frozen=True, slots=True)
class _Rows:
    """What the store refers to."""

    runs: dict[str, RunStatus]
    held: set[str]  # runs that another live process works on
    published: dict[Kind, set[str]]  # of checkpoints and of moments, both by the checkpoint's id
    done: set[tuple[str, int, str]]  # stages: run, iteration, stage
    evaluations: set[str]


def garbage(home: Home, store: Store, patience: timedelta = PATIENCE, *, only_run: str | None = None) -> list[Garbage]:
    """All garbage that has not changed for `patience`, by kind and path; only that of one run if it is named. Nothing
    is removed or changed."""
    return _garbage(store, patience, [top for top in _tops(home) if only_run in (None, top.run)])


def collect(home: Home, store: Store, patience: timedelta = PATIENCE) -> list[Garbage]:
    """Remove all garbage that has not changed for `patience`, and return it.

    Runs that a process works on are left out. Raises `DiskError` where `refuse_other_database` does, and if a file
    cannot be removed.
    """
    refuse_other_database(home, store)
    removed = list[Garbage]()
    for run in sorted({item.run for item in garbage(home, store, patience)}, key=lambda name: name or ""):
        with suppress(RunHeld), run_held(store, run) if run is not None else nullcontext():
            # It is looked for again, since a process may have worked on the run before this one got the lease.
            for item in _garbage(store, patience, [top for top in _tops(home) if top.run == run]):
                discard(item.path)
                removed.append(item)
    return removed


def refuse_other_database(home: Home, store: Store) -> None:
    """Raise `DiskError` if the home has files of runs and the store has none of these runs.

    It is then likely that the store belongs to another home, and all these files would be garbage.
    """
    named = {top.run for top in _tops(home)} - {None}
    rows = _rows(store)
    if named and not named & {*rows.runs, *rows.held}:
        raise DiskError(
            f"{home.path}: expected files of the runs in {store.address}, got only files of other runs, such as "
            f"{min(filter(None, named))}: is COEVO_DATABASE right? If so, `coevo runs delete NAME` removes the files"
        )


def _tops(home: Home) -> list[_Top]:
    tops = []
    for kind, path in [(of, path) for of in KINDS for path in entries(folder_of(home, of))]:
        removed = HALF_REMOVED.fullmatch(path.name)
        run = half_written_run(path) or (removed["name"] if removed else path.name)
        inside = [] if removed else entries(path)
        below = [*inside, *(lower for folder in inside for lower in entries(folder))]
        tops.append(_Top(kind, path, run if RUN_NAME.fullmatch(run) else None, below))
    return tops


def _garbage(store: Store, patience: timedelta, tops: Sequence[_Top]) -> list[Garbage]:
    """`tops` were listed before the store is read here. So each file of `tops` has its row by now, unless a process
    holds the lease on the file's run."""
    rows, latest, seen = _rows(store), datetime.now(UTC) - patience, set[tuple[int, int]]()
    return [
        Garbage(path, top.run, why, size_of(path, seen))
        for top in tops
        if top.run not in rows.held
        for path, why in _judged(top, rows)
        if last_change(path) <= latest
    ]


def _rows(store: Store) -> _Rows:
    with store.read() as session:
        now, me = queries.tables.database_time(session), owner()
        leases = queries.run_leases.leases(session).values()
        others = [lease for lease in leases if lease.owner != me and is_alive(lease.owner)]
        return _Rows(
            runs={run.name: run.status for run in queries.runs.list_runs(session)},
            held={lease.run for lease in others if lease.expires > now},
            published={
                "checkpoints": queries.run_rows.checkpoint_ids(session),
                "optimisers": queries.run_rows.moments(session),
            },
            done=queries.run_rows.done_stages(session),
            evaluations=queries.run_rows.evaluation_ids(session),
        )


def _judged(top: _Top, rows: _Rows) -> Iterator[tuple[Path, str]]:
    """What is garbage in an entry, with the reason."""
    if half_written_run(top.path):
        yield top.path, "a checkpoint that was not completed"
    elif HALF_REMOVED.fullmatch(top.path.name):
        yield top.path, "its removal was cut off"
    elif top.path.name == EVALUATIONS:
        yield from _of_evaluations(top, rows.evaluations)
    elif top.kind == "exports" and top.path.name == OF_RUNS:
        yield from _of_runs(top, rows.runs)
    elif top.run is None:
        return
    elif top.run not in rows.runs:
        yield top.path, "the store has no such run"
    elif top.kind == "exports":
        yield from _of_exports(top.below)
    elif top.kind == "work" and rows.runs[top.run] in _ENDED:
        yield top.path, "work of a run that has ended"
    else:
        for path in top.below:
            parts = path.relative_to(top.path).parts
            if len(parts) == 2 and (why := _why(top.kind, top.run, *parts, rows)) is not None:
                yield path, why


def _why(kind: Kind, run: str, folder: str, name: str, rows: _Rows) -> str | None:
    """Why RUN/FOLDER/NAME of a run in the store is garbage; None if it is not."""
    if HALF_REMOVED.fullmatch(name):
        return "its removal was cut off"
    if kind in rows.published:
        is_one = folder in ROLES and _ITERATION.fullmatch(name)
        return "no row refers to its files" if is_one and f"{run}/{folder}/{name}" not in rows.published[kind] else None
    stage, _, suffix = name.partition(".")
    if not _ITERATION.fullmatch(folder) or (run, int(folder), stage) not in rows.done:
        return None
    if kind == "work":
        return None if suffix else "work of a stage that is done"
    return "parts of texts that are complete" if suffix == "parts" or suffix.endswith(".part") else None


def _of_exports(paths: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    replaced = _replaced(paths)
    for path in paths:
        if path.name.endswith(".part"):
            yield path, "an export that was not completed"
        elif path in replaced:
            yield path, "replaced by a later export"


def _of_runs(top: _Top, known: Collection[str]) -> Iterator[tuple[Path, str]]:
    """What is garbage among the exports of several runs."""
    exports, replaced = exports_of_runs(top.path), _replaced(top.below)
    runs_of = exports | {manifest_path_of(path): runs for path, runs in exports.items()}
    for path in top.below:
        if path not in runs_of:
            yield path, "an export that was not completed"
        elif {*runs_of[path]} - {*known}:
            yield path, "the store does not have all of its runs"
        elif path in replaced:
            yield path, "replaced by a later export"


def _of_evaluations(top: _Top, known: Collection[str]) -> Iterator[tuple[Path, str]]:
    of_known = list[Path]()
    for path in top.below:
        match = _EVALUATION.fullmatch(path.relative_to(top.path).parts[0])
        if match and match["key"] in known:
            of_known.append(path)
        elif path.parent == top.path and HALF_REMOVED.fullmatch(path.name):
            yield path, "its removal was cut off"
        elif path.parent == top.path and _HALF_WRITTEN_TEXTS.fullmatch(path.name):
            yield path, "texts that were not completed"
        elif path.parent == top.path and match:
            yield path, "the store has no such evaluation"
    yield from _of_exports(of_known)


def _replaced(paths: Sequence[Path]) -> set[Path]:
    """The exported files, with their manifests, of which a later version has been written."""
    versions: dict[tuple[Path, str, str], dict[str, list[Path]]] = {}
    for path in paths:
        if match := _EXPORT.fullmatch(path.name):
            key = (path.parent, match["rows"], match["format"])
            versions.setdefault(key, {}).setdefault(match["version"], []).append(path)
    return {
        path
        for of_rows in versions.values()
        for version in sorted(of_rows, key=lambda version: max(map(last_change, of_rows[version])))[:-1]
        for path in of_rows[version]
    }
