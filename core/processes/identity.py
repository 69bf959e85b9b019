"""Identifies processes by pid and start time, because a pid may be reused for another process.

A pid counts within one PID namespace: two containers may have the same host name and the same pids.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil


@cache
def space() -> str:
    """HOST@BOOT.NAMESPACE: the processes among which a pid of this process is unique.

    The boot's id tells machines apart that have one host name; the namespace tells containers of one machine apart.
    """
    boot, namespace = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    if not boot.exists() or not namespace.exists():  # not Linux, which has no PID namespaces
        return socket.gethostname()
    return f"{socket.gethostname()}@{boot.read_text()[:8]}.{os.stat(namespace).st_ino}"


def started(pid: int) -> float:
    """The start time of a process, to be compared with an earlier result of this function.

    On Linux it is in clock ticks since boot, because psutil's time of day changes when the clock is set. Raises
    `psutil.NoSuchProcess`.
    """
    if not Path("/proc/self/stat").exists():
        return float(psutil.Process(pid).create_time())
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise psutil.NoSuchProcess(pid) from error
    return float(stat.rpartition(")")[2].split()[19])  # field 22; the name in brackets may contain anything


def listens(pid: int, port: int) -> bool:
    """Whether the process, or a descendant of it, listens at a TCP port."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return False
    for member in family:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if any(
                connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
                for connection in member.net_connections("tcp")
            ):
                return True
    return False


def is_running(pid: int, since: float) -> bool:
    """Whether the process that started at `since` still runs. A zombie does not."""
    try:
        return started(pid) == since and bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
