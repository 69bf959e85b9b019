"""The processes below another one, by their titles."""

from __future__ import annotations

import psutil


def descendants(pid: int) -> list[tuple[psutil.Process, str]]:
    """Those that live, each with its command line, which Ray's processes make a title of."""
    titled = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            titled.append((process, " ".join(process.cmdline()).strip()))
        except psutil.NoSuchProcess:  # ended meanwhile, or a zombie
            continue
    return titled
