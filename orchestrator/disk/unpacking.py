"""Puts the files of an archive into a home: each folder of a run, and each file of an evaluation, appears at once."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from core.files import make_folder, replacing, sync
from orchestrator.disk.archived import destination
from orchestrator.disk.files import KINDS, folder_of
from orchestrator.installation.home import Home
from storage.archive import Archive, rows_name
from storage.errors import ArchiveError
from trainers.folders import appearing

Members = dict[str | None, str]  # path below a folder -> member; None -> the member, if it is no folder


def tops_of(
    home: Home, archive: Archive, tables: Mapping[str, Collection[str]], runs: Collection[str]
) -> dict[Path, Members]:
    """What appears at once in the home, with its members. `tables` has the tables of each section that is restored.

    A folder of a run that must not exist, as it would be left from another one, has no members. Raises `ArchiveError`.
    """
    tops: dict[Path, Members] = {folder_of(home, kind) / run: {} for run in runs for kind in KINDS}
    for section, names in tables.items():
        for name in sorted({*archive.names(section)} - {rows_name(section, table) for table in names}):
            target = destination(home, section, name)
            tops.setdefault(target.top, {})[target.below] = name
    return tops


def is_unpacked(archive: Archive, top: Path, members: Members) -> bool:
    """Whether a restoration that was killed has unpacked these members. It leaves all of a folder or nothing, so this
    raises `ArchiveError` if there are other files, or only some of the members."""
    files: dict[str | None, Path] = {None: top}
    if not top.is_symlink() and top.is_dir():
        files = {
            path.relative_to(top).as_posix(): path for path in top.rglob("*") if path.is_symlink() or not path.is_dir()
        }
    elif not top.is_symlink() and not top.exists():
        files = {}
    if not files:
        return False
    for below, path in files.items():
        if below not in members or path.is_symlink() or not _has_content(path, archive, members[below]):
            raise ArchiveError(
                f"{path}: this file is not the archive's. Nothing was changed. If it is left over from another run, "
                "`coevo runs delete RUN` removes it"
            )
    if files.keys() != members.keys():
        raise ArchiveError(
            f"{top}: expected {len(members)} files of the archive or none, got {len(files)}. Nothing was changed. "
            "`coevo runs delete RUN` removes them"
        )
    return True


def _has_content(path: Path, archive: Archive, name: str) -> bool:
    member = archive.member(name)
    if path.stat().st_size != member.bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == member.sha256


def unpack(archive: Archive, top: Path, members: Members) -> None:
    """Write members to their destination. Raises `OSError`, and `ArchiveError` if the archive has changed."""
    make_folder(top.parent)
    if None in members:
        with replacing(top) as temporary:
            _write(archive, members[None], temporary)
        return
    with appearing(top) as folder:
        try:
            for below, name in members.items():
                _write(archive, name, folder / str(below))
            for path in folder.rglob("*"):
                if path.is_dir():
                    sync(path)
        except BaseException:
            shutil.rmtree(folder)
            raise


def _write(archive: Archive, name: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        for chunk in archive.chunks(name):
            file.write(chunk)
    sync(target)
