"""Folders that appear, and go, at once: half a folder never looks like a whole one."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from core.files import sync


@contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `target` at once and durably, unless another writer was first."""
    folder = target.parent / f".{target.name}-{uuid.uuid4().hex}.part"
    folder.mkdir(parents=True)
    yield folder
    for path in [*folder.iterdir(), folder]:
        sync(path)
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(folder)
    sync(target.parent)


def remove(folder: Path) -> None:
    """Take `folder` out of sight at once, then delete it."""
    doomed = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}.part")
    with suppress(FileNotFoundError):  # another writer was first
        folder.rename(doomed)
        shutil.rmtree(doomed)


def remove_unfinished(parent: Path) -> None:
    """Remove what a killed writer left half-written."""
    for folder in parent.glob(".*.part"):
        shutil.rmtree(folder, ignore_errors=True)
