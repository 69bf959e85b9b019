"""Which process is which: a pid alone is not enough, its number may have gone to another one since."""

from __future__ import annotations

from pathlib import Path

import psutil


def started(pid: int) -> float:
    """When a process began, to compare with what `started` said before; it names the process together with its pid.

    On Linux in clock ticks since boot, because psutil's time of day moves when the clock is set. Raises
    `psutil.NoSuchProcess`.
    """
    if not Path("/proc/self/stat").exists():
        return float(psutil.Process(pid).create_time())
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise psutil.NoSuchProcess(pid) from error
    return float(stat.rpartition(")")[2].split()[19])  # field 22; the name, in brackets, may hold anything


def is_running(pid: int, since: float) -> bool:
    """Whether the process that began at `since` still runs; one that nobody has reaped yet does not."""
    try:
        return started(pid) == since and bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
