"""Writing files so that they are complete or absent, even after a power cut, and reading files that another process is
still writing."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """`mkdir --parents` that survives a power cut."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync(folder.parent)


def put(temporary: Path, final: Path) -> None:
    """Give a finished temporary file its name, in place of whatever had it."""
    sync(temporary)
    os.replace(temporary, final)
    sync(final.parent)


def whole_lines(file: Path, offset: int) -> tuple[int, list[bytes]]:
    """Where the complete lines from byte `offset` on end, and those lines. An incomplete last line is not returned."""
    with file.open("rb") as stream:
        stream.seek(offset)
        whole, end, _ = stream.read().rpartition(b"\n")
    return offset + len(whole) + len(end), whole.splitlines()
