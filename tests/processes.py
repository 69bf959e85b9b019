"""The processes that another process has started, with their titles."""

from __future__ import annotations

import psutil


def descendants(pid: int) -> list[tuple[psutil.Process, str]]:
    """The living descendants of a process, each with its command line; Ray's processes write their title there."""
    titled = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            titled.append((process, " ".join(process.cmdline()).strip()))
        except psutil.NoSuchProcess:  # it has ended meanwhile, or is a zombie
            continue
    return titled
