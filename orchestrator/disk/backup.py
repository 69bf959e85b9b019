"""`coevo backup`: runs with their rows and files in one archive, which another installation can restore.

The rows are read in one transaction, and the files are pinned right after it has begun: each gets a second hard link,
so that it can be read even if the run goes on and removes it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import ZipFile

from sqlalchemy.orm import Session

from core.files import make_folder, replacing
from orchestrator.disk.archived import ArchivedFile, files_of
from orchestrator.installation.home import Home
from storage import queries
from storage.archive import FORMAT, ArchiveWriter, Manifest, rows_name, run_of, section_of
from storage.archive_rows import References, as_json
from storage.errors import ArchiveError
from storage.schema import newest_version
from storage.session import DATABASE_ERRORS, Store
from storage.trouble import reason_of

_ATTEMPTS = 3  # to pin the files before a run changes them


@dataclass(frozen=True, slots=True)
class Backup:
    """What an archive has: rows by run and table, and the number of its files. `bytes` is the size of the archive.
    `unfinished` names the stages that had begun and were not done, as RUN/ITERATION/STAGE."""

    archive: Path
    bytes: int
    runs: dict[str, dict[str, int]]
    files: int
    unfinished: list[str]


class _ChangedMeanwhile(Exception):
    """A run went on, and changed its files, between the beginning of the transaction and the pinning of the files."""


def back_up(home: Home, store: Store, target: Path, runs: Collection[str] = ()) -> Backup:
    """Write these runs to a new archive; all runs, and the evaluations of models that are no run's, if none is named.

    The archive appears when it is complete. Raises `NotThere` for an unknown run, and `ArchiveError` if the archive
    exists or cannot be written, or if a checkpoint does not have the files that were published.
    """
    if os.path.lexists(target):
        raise ArchiveError(f"{target}: exists already; choose another name, or remove it")
    reason = ""
    for _ in range(_ATTEMPTS):
        try:
            return _write(home, store, target, runs)
        except _ChangedMeanwhile as error:
            reason = str(error)
        except (*DATABASE_ERRORS, OSError) as error:
            raise ArchiveError(f"{target}: cannot be written: {reason_of(error)}") from error
    raise ArchiveError(f"{target}: cannot be written: {reason}; `coevo verify RUN` says more")


def _write(home: Home, store: Store, target: Path, runs: Collection[str]) -> Backup:
    with replacing(target) as temporary, _pins(home) as pins:
        temporary.touch(mode=0o600)
        with ZipFile(temporary, "w") as archive:
            writer = ArchiveWriter(archive)
            with store.snapshot(target.parent) as session:
                chosen = _chosen(session, runs)
                references = References(run for run in chosen if run is not None)
                files = _pinned(home, store, session, chosen, pins)
                rows = _add_rows(writer, session, chosen, references)
                unfinished = _unfinished(session, chosen)
            for file in files:
                writer.add_file(file.name, file.path)
            references.refuse_other_files(writer.members)
            writer.finish(
                Manifest(
                    format=FORMAT,
                    coevo=version("coevo"),
                    schema_version=newest_version(),
                    made_at=datetime.now(UTC),
                    rows=rows,
                    members=writer.members,
                )
            )
    of_runs = {run: of_run for section, of_run in rows.items() if (run := run_of(section)) is not None}
    return Backup(target, target.stat().st_size, of_runs, len(files), unfinished)


def _chosen(session: Session, runs: Collection[str]) -> list[str | None]:
    """These runs in alphabetical order; if there are none, all runs, and None for the evaluations that are no run's."""
    for run in runs:
        queries.runs.get_run(session, run)  # raises, with the names of the runs that there are
    if runs:
        return [*sorted({*runs})]
    return [*sorted(run.name for run in queries.runs.list_runs(session)), None]


@contextmanager
def _pins(home: Home) -> Iterator[Path]:
    """A folder for hard links to files of the home. `coevo gc` removes it if this process is killed."""
    folder = home.work / f"._backup-{uuid4().hex}.part"  # no run has this name
    make_folder(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _pinned(home: Home, store: Store, session: Session, chosen: Sequence[str | None], pins: Path) -> list[ArchivedFile]:
    """The files that the rows of the transaction name, under paths at which they stay. Raises `_ChangedMeanwhile`."""
    files = [file for run in chosen for file in files_of(home, session, run)]
    pinned = [replace(file, path=_pin(file.path, pins / str(index))) for index, file in enumerate(files)]
    newer = [file.name for file in files if file.may_be_newer]
    with store.read() as now:
        if newer and _progress(now, chosen) != _progress(session, chosen):
            raise _ChangedMeanwhile(f"the run goes on while it is read: {newer[0]} was completed")
    return pinned


def _pin(path: Path, link: Path) -> Path:
    try:
        os.link(path, link)
    except FileNotFoundError as error:
        raise _ChangedMeanwhile(f"{path} is missing") from error
    except OSError:  # it is on another disk, or the disk has no hard links
        return path
    return link


def _progress(session: Session, chosen: Sequence[str | None]) -> list[Any]:
    """Changes whenever a stage or an evaluation of these runs stores something."""
    stages = [row for run in chosen if run is not None for row in queries.ledger.stages_of(session, run)]
    evaluations = [row for run in chosen for row in queries.archived.evaluations_of(session, run)]
    return [
        *((row.run, row.iteration, row.stage, row.status, row.attempt, row.progress_done) for row in stages),
        *((row.id, row.seconds, row.finished_at) for row in evaluations),
    ]


def _add_rows(
    writer: ArchiveWriter, session: Session, chosen: Sequence[str | None], references: References
) -> dict[str, dict[str, int]]:
    """Add the rows of all tables; returns how many, by section and table."""
    now = queries.tables.database_time(session)
    counts: dict[str, dict[str, int]] = {section_of(run): {} for run in chosen}
    for table in queries.archived.TABLES:
        for section, of_section in counts.items():
            rows = queries.archived.rows_of(session, table, run_of(section))
            if rows is not None:
                checked = references.checked(section, table, (_without_home(table.name, row, now) for row in rows))
                name = rows_name(section, table.name)
                of_section[table.name] = writer.add_rows(name, map(as_json, checked))
    return counts


def _without_home(table: str, row: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """A row without what is true of this installation only: a process that works on a stage, and the path of a
    checkpoint."""
    if table == "stages" and row["status"] == "running":
        return {**row, "lease_expires": min(row["lease_expires"], now)}
    if table == "checkpoints":
        return {**row, "path": f"checkpoints/{row['role']}/{row['iteration']}"}
    return dict(row)


def _unfinished(session: Session, chosen: Sequence[str | None]) -> list[str]:
    stages = [row for run in chosen if run is not None for row in queries.ledger.stages_of(session, run)]
    return [f"{row.run}/{row.iteration}/{row.stage}" for row in stages if row.status != "done"]
