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


def status_of(pid: int) -> str | None:
    """The status of a process, such as "stopped"; None if there is none any more, or it is a zombie."""
    try:
        status = psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return None
    return None if status == psutil.STATUS_ZOMBIE else str(status)
