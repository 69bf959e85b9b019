"""`coevo restore`: runs of an archive in this home and its database.

Everything that is to be restored is read and checked before anything is written. Then the files are put in place, and
the rows are added in one transaction. A restoration that is killed before the transaction ends leaves files that no row
refers to: the same command goes on from them, and `coevo gc` removes them.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from sqlalchemy import Table
from sqlalchemy.orm import Session

from core.types import BenchmarkItem
from orchestrator.disk.named import named_in
from orchestrator.disk.unpacking import Members, is_unpacked, tops_of, unpack
from orchestrator.installation.home import Home, make_private
from orchestrator.ledger import run_held
from orchestrator.question_sets.benchmarks import sha256_of
from storage import queries
from storage.archive import NO_RUN, Archive, open_archive, rows_name, run_of, section_of
from storage.archive_rows import References, parsed
from storage.errors import ArchiveError
from storage.queries.archived import TABLES
from storage.schema import newest_version
from storage.session import DATABASE_ERRORS, Store
from storage.trouble import reason_of

_NAMED = 5  # runs or evaluations that a message names
_ROOM_OF_A_ROW = 3  # bytes in the database, with its indexes and its journal, for each byte of a row in the archive


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored, or would be: rows by run and table, what the settings of each run name, the number of
    evaluations of models that are no run's, and files with their bytes."""

    archive: Path
    runs: dict[str, dict[str, int]]
    named: dict[str, dict[str, str]]
    evaluations: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Plan:
    home: Home
    store: Store
    archive: Archive
    rows: dict[str, dict[str, int]]  # section -> table -> how many
    runs: list[str]
    tops: dict[Path, Members]
    trusted: bool

    @property
    def members(self) -> list[str]:
        """The members that become files."""
        return [name for members in self.tops.values() for name in members.values()]


def restore(
    home: Home,
    store: Store,
    source: Path,
    runs: Collection[str] = (),
    *,
    dry_run: bool = False,
    trusted: bool = False,
) -> Restored:
    """Restore these runs of an archive; all that it has if none is named. With `dry_run`, only check that it can be.

    Unless the archive is `trusted`, a run that could go on must be continued by somebody who may read the home before
    the REST API does so: its settings may name programs (`queries.runs.refuse_unconfirmed`).

    Raises `ArchiveError` before anything is written if the archive is damaged, is of another version of the tables, or
    has no such run; if the store has a run of the same name, or the home other files of it; or if the disk is too
    small. Raises `RunHeld` if another process creates a run of the same name.
    """
    try:
        with open_archive(source) as archive:
            plan = _planned(home, store, archive, runs, trusted)
            _check(plan)
            named = {run: _named(plan, run) for run in plan.runs}
            if not dry_run:
                _write(plan)
    except DATABASE_ERRORS as error:
        raise ArchiveError(f"{source}: the database does not take its rows: {reason_of(error)}") from error
    except OSError as error:
        raise ArchiveError(f"{source}: cannot be restored: {error}") from error
    return Restored(
        archive=source,
        runs={run: plan.rows[section_of(run)] for run in plan.runs},
        named=named,
        evaluations=plan.rows.get(NO_RUN, {}).get("evaluations", 0),
        files=len(plan.members),
        bytes=_bytes(archive, plan.members),
    )


def _planned(home: Home, store: Store, archive: Archive, runs: Collection[str], trusted: bool) -> _Plan:
    manifest = archive.manifest
    if manifest.schema_version != newest_version():
        raise ArchiveError(
            f"{archive.path}: expected tables of version {newest_version()}, got {manifest.schema_version}. Restore it "
            f"with coevo {manifest.coevo}, which made it, into a home of its own. If this coevo is the newer one, "
            "`coevo migrate` then upgrades that home, and `coevo backup` makes an archive that can be restored here"
        )
    known = [name for section in manifest.rows if (name := run_of(section)) is not None]
    for run in runs:
        if run not in known:
            names = ", ".join(sorted(known)[:_NAMED]) or "none"
            raise ArchiveError(f"{archive.path}: has no run {run}; it has {names}")
    rows = {section: tables for section, tables in manifest.rows.items() if not runs or run_of(section) in runs}
    chosen = sorted(name for section in rows if (name := run_of(section)) is not None)
    for run in chosen:
        queries.runs.refuse_name(run)
    for section, tables in rows.items():
        is_of_one_run = section == NO_RUN or (section == section_of(run_of(section)) and tables.get("runs") == 1)
        if not is_of_one_run or not tables.keys() <= {table.name for table in TABLES}:
            raise ArchiveError(f"{archive.path}: {section}: expected the rows of one run, in tables of coevo's")
    return _Plan(home, store, archive, rows, chosen, tops_of(home, archive, rows, chosen), trusted)


def _named(plan: _Plan, run: str) -> dict[str, str]:
    """What the settings of a run name, those included that it was made from."""
    (row,) = _rows(plan, section_of(run), queries.archived.RUNS)
    return named_in({name: row[name] for name in ("config", "overrides") if row[name]})


def _check(plan: _Plan) -> None:
    """Read all that is to be restored. Raises `ArchiveError` if it cannot be; nothing is written."""
    _refuse_existing(plan, plan.runs)
    _refuse_small_disk(plan)
    for top, members in plan.tops.items():
        is_unpacked(plan.archive, top, members)
    references = References(plan.runs)
    for table in TABLES:
        for section in plan.rows:
            _check_rows(plan, references, section, table)
    with plan.store.read() as session:
        existing = queries.archived.stored_evaluations(session, references.keys["evaluations"])
    if existing:
        raise ArchiveError(
            f"{plan.archive.path}: the store has some of its evaluations already: {', '.join(existing[:_NAMED])}. Name "
            "the runs to restore: then the evaluations of models that are no run's are left out"
        )
    for name in plan.members:
        for _ in plan.archive.chunks(name):
            pass
    references.refuse_other_files({name: plan.archive.manifest.members[name] for name in plan.members})


def _refuse_existing(plan: _Plan, runs: Collection[str]) -> None:
    with plan.store.read() as session:
        existing = sorted(queries.runs.runs_named(session, runs))
    if existing:
        raise ArchiveError(
            f"{plan.archive.path}: the store has runs of these names already: {', '.join(existing[:_NAMED])}; name the "
            "other runs to restore, or delete these: `coevo runs delete NAME`"
        )


def _refuse_small_disk(plan: _Plan) -> None:
    rows = [rows_name(section, table) for section, tables in plan.rows.items() for table in tables]
    needed = _bytes(plan.archive, plan.members) + _ROOM_OF_A_ROW * _bytes(plan.archive, rows)
    folder = next(path for path in (plan.home.path, *plan.home.path.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ArchiveError(
            f"{plan.home.path}: expected {needed:,} bytes that are free, for files and rows, got {free:,}"
        )


def _bytes(archive: Archive, names: Collection[str]) -> int:
    return sum(archive.member(name).bytes for name in names)


def _check_rows(plan: _Plan, references: References, section: str, table: Table) -> None:
    stated = plan.rows[section].get(table.name)
    if stated is None:
        return
    count, items = 0, list[dict[str, Any]]()
    for row in references.checked(section, table, _rows(plan, section, table)):
        count += 1
        if table.name == "benchmark_items":
            items.append(row)
    if count != stated:
        raise ArchiveError(f"{plan.archive.path}: rows of {table.name} of {section}: expected {stated}, got {count}")
    _check_benchmarks(plan, items)


def _check_benchmarks(plan: _Plan, rows: list[dict[str, Any]]) -> None:
    """The questions of a benchmark are shared by all who evaluate it, so they must be those that their sha256 names."""
    for sha256, group in groupby(
        sorted(rows, key=lambda row: (row["sha256"], row["position"])), lambda row: row["sha256"]
    ):
        items = [
            BenchmarkItem(row["item_id"], row["problem"], row["answer"], row["level"], row["subject"]) for row in group
        ]
        if (actual := sha256_of(items)) != sha256:
            raise ArchiveError(f"{plan.archive.path}: questions of a benchmark: expected sha256 {sha256}, got {actual}")


def _rows(plan: _Plan, section: str, table: Table) -> Iterator[dict[str, Any]]:
    return (parsed(table, line) for line in plan.archive.lines(rows_name(section, table.name)))


def _write(plan: _Plan) -> None:
    """Put the files in place, and add the rows in one transaction."""
    if not plan.home.path.exists():
        make_private(plan.home.path)
    with ExitStack() as held:
        for run in plan.runs:
            held.enter_context(run_held(plan.store, run))
        _refuse_existing(plan, plan.runs)
        for top, members in plan.tops.items():
            if members and not is_unpacked(plan.archive, top, members):
                unpack(plan.archive, top, members)
        with plan.store.write() as session:
            for table in TABLES:
                for section, tables in plan.rows.items():
                    if table.name in tables:
                        queries.archived.add_rows(session, table, _at_home(plan, section, table))
            _refuse_other_counts(plan, session)
            queries.questions.gather_statistics(session)


def _at_home(plan: _Plan, section: str, table: Table) -> Iterator[dict[str, Any]]:
    """The rows, with what this home says of them: where checkpoints are, and whether a run may simply go on."""
    for row in _rows(plan, section, table):
        if table.name == "checkpoints":
            yield {**row, "path": str(plan.home.checkpoints / row["id"])}
        elif table is queries.archived.RUNS:
            yield {**row, "unconfirmed": not plan.trusted}
        else:
            yield row


def _refuse_other_counts(plan: _Plan, session: Session) -> None:
    """Raise `ArchiveError` if two rows of the archive have the same key: only the first of them was added."""
    for run in plan.runs:
        expected = {table: count for table, count in plan.rows[section_of(run)].items() if count}
        expected.pop("benchmark_items", None)  # they belong to no run
        added = queries.run_rows.rows_of_run(session, run)
        added.pop("run_leases", None)
        if added != expected:
            raise ArchiveError(f"{plan.archive.path}: run {run}: expected the rows {expected}, got {added}")
