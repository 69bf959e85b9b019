"""Which files of the home belong to which run, how much room they take, and their removal."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from core.errors import CoevoError
from core.types import CheckpointRole
from orchestrator.installation.home import Home
from storage.exports.files import MANIFEST, OF_RUNS, manifest_path_of
from storage.files.run_logs import log_files
from storage.files.texts import evaluation_path
from trainers.folders import remove

# Of the files of a run, as the home's folders.
Kind = Literal["checkpoints", "optimisers", "texts", "work", "exports", "trackers"]
KINDS: tuple[Kind, ...] = get_args(Kind)
EVALUATIONS = "_evaluations"  # in the folders of texts and exports, beside those of the runs
ROLES: tuple[CheckpointRole, ...] = tuple(role for part in get_args(CheckpointRole) for role in get_args(part))
# `storage.files.checkpoints.publish` writes a checkpoint into such a folder before it renames it.
HALF_WRITTEN = re.compile(rf"\.tmp-(?P<run>.+)-(?:{'|'.join(ROLES)})-\d+-[a-z0-9_]+")

HALF_REMOVED = re.compile(r"\.(?P<name>.+)-[0-9a-f]{32}\.part")  # `trainers.folders.remove` renames a folder to this


class DiskError(CoevoError):
    """Files that cannot be removed, or that must not be; the message says why."""


@dataclass(frozen=True, slots=True)
class Files:
    """A file or a folder in the home, and the bytes that it takes on the disk."""

    path: Path
    bytes: int


def folder_of(home: Home, kind: Kind) -> Path:
    """The folder with the files of one kind, in which every run has a folder of its own."""
    folder: Path = getattr(home, kind)
    return folder


def files_of_run(home: Home, run: str, evaluations: Collection[str] = ()) -> list[Files]:
    """All that a run has in the home, but its reports; exports of several runs that have it; and the texts and exports
    of these `evaluations`."""
    paths = [folder_of(home, kind) / run for kind in KINDS]
    exports = exports_of_runs(home.exports / OF_RUNS)
    paths += [path for path, runs in exports.items() if run in runs]
    paths += [manifest_path_of(path) for path, runs in exports.items() if run in runs]
    paths += log_files(home.run_logs, run)
    for path in (path for kind in KINDS for path in entries(folder_of(home, kind))):
        removed = HALF_REMOVED.fullmatch(path.name)
        if half_written_run(path) == run or (removed and removed["name"] == run):
            paths.append(path)
    for key in sorted(evaluations):
        texts = evaluation_path(home.texts, key)
        paths += [texts, texts.with_suffix(".parts"), *texts.parent.glob(f"{texts.name}.*.part")]
        paths.append(home.exports / EVALUATIONS / key)
    return measured(path for path in paths if os.path.lexists(path))


def exports_of_runs(folder: Path) -> dict[Path, list[str]]:
    """The exports of several runs that have a manifest in their folder, with the runs that it names."""
    runs = dict[Path, list[str]]()
    for manifest in entries(folder):
        if manifest.name.endswith(MANIFEST):
            with suppress(FileNotFoundError):  # it is being removed
                named = [run["run"] for run in json.loads(manifest.read_text())["runs"]]
                runs[manifest.with_name(manifest.name.removesuffix(MANIFEST))] = named
    return runs


def half_written_run(path: Path) -> str | None:
    """The run of a folder into which a checkpoint or an optimiser's moments are written; None for any other path."""
    match = HALF_WRITTEN.fullmatch(path.name)
    return match and match["run"]


def measured(paths: Iterable[Path]) -> list[Files]:
    """The paths with their sizes; a file with several hard links is counted where it comes first."""
    seen = set[tuple[int, int]]()
    return [Files(path, size_of(path, seen)) for path in paths]


def size_of(path: Path, seen: set[tuple[int, int]]) -> int:
    """The bytes that a file, or a folder with all in it, takes on the disk.

    A file with several hard links is counted once for each `seen`, which this adds to. Symbolic links are not followed.
    What another process removes meanwhile counts as nothing.
    """
    total = 0
    for status in _statuses(path):
        key = (status.st_dev, status.st_ino)
        if key not in seen:
            seen.add(key)
            total += status.st_blocks * 512  # st_blocks is in units of 512 bytes on every system
    return total


def last_change(path: Path) -> datetime:
    """When a file, or anything in a folder, was written last."""
    newest = max((status.st_mtime for status in _statuses(path)), default=0.0)
    return datetime.fromtimestamp(newest, UTC)


def _statuses(path: Path) -> Iterator[os.stat_result]:
    """Of a path and of all below it."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    yield status
    if stat.S_ISDIR(status.st_mode):
        for entry in entries(path):
            yield from _statuses(entry)


def entries(folder: Path) -> list[Path]:
    """What is in a folder, in alphabetical order; nothing if there is no such folder."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def discard(path: Path) -> None:
    """Remove a file, or a folder with all in it. A folder disappears at once, even if this is interrupted."""
    try:
        if path.is_dir() and not path.is_symlink():
            remove(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise DiskError(f"{path}: cannot be removed: {error.strerror}; repeat the command when it can be") from error
