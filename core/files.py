"""Writing files so that they are complete or absent, even after a power cut, and reading files that another process is
still writing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from core.processes.faultpoints import faultpoint


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents so that they survive a power cut."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync(folder.parent)


def put(temporary: Path, final: Path) -> None:
    """Rename a finished temporary file to its final name, replacing a file that has that name."""
    sync(temporary)
    faultpoint("file written")
    os.replace(temporary, final)
    faultpoint("file renamed")
    sync(final.parent)


@contextmanager
def replacing(final: Path) -> Iterator[Path]:
    """Yield the path of a temporary file beside `final`. At the end it is renamed to `final`; after an error it is
    removed.

    Temporary names are unique: a suspended process may wake up and write the same file as its successor.
    """
    temporary = final.with_name(f"{final.name}.{uuid4().hex}.part")
    try:
        yield temporary
        put(temporary, final)
    except BaseException:
        with suppress(OSError):  # it must not hide the error before it
            temporary.unlink(missing_ok=True)
        raise


def whole_lines(file: Path, offset: int) -> tuple[int, list[bytes]]:
    """Read the complete lines from byte `offset` on. Returns the offset at which they end, and the lines.

    An incomplete last line is left out.
    """
    with file.open("rb") as stream:
        stream.seek(offset)
        complete, newline, _ = stream.read().rpartition(b"\n")
    return offset + len(complete) + len(newline), complete.splitlines()
