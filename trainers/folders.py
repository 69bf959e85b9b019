"""Writes and removes folders atomically, so that a half-written folder never looks like a complete one."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from core.files import sync
from core.processes.faultpoints import faultpoint


@contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """Yield a temporary folder to write into, and rename it to `target` at the end, after syncing its files.

    If another writer made `target` in the meantime, that folder stays and this one is deleted.
    """
    folder = target.parent / f".{target.name}-{uuid.uuid4().hex}.part"
    folder.mkdir(parents=True)
    yield folder
    for path in [*folder.rglob("*"), folder]:
        sync(path)
    faultpoint("folder written")
    try:
        folder.rename(target)
        faultpoint("folder renamed")
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(folder)
    sync(target.parent)


def remove(folder: Path) -> None:
    """Rename `folder` to a hidden name, which is atomic, and then delete it."""
    hidden = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}.part")
    with suppress(FileNotFoundError):  # another process has removed it
        folder.rename(hidden)
        faultpoint("folder hidden")
        shutil.rmtree(hidden)


def remove_unfinished(parent: Path) -> None:
    """Remove the half-written folders that a killed process left in `parent`."""
    for folder in parent.glob(".*.part"):
        shutil.rmtree(folder, ignore_errors=True)
