"""Measures how long a person waits at the command line: for help, status, and starting and stopping services."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_COEVO = Path(sys.executable).parent / "coevo"
_ROUNDS = 5


def run() -> dict[str, float]:
    """Measure seconds: processor time for `help_cpu_s`, wall-clock time for the others.

    `help_cpu_s` and `status_s` are medians. `up_s` and `down_s` are measured once, in a new home folder.
    """
    with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder:
        help_cpu_s = statistics.median(_coevo(folder, "--help")[1] for _ in range(_ROUNDS))
        up_s, _ = _coevo(folder, "up", "--free-ports")
        try:
            status_s = statistics.median(_coevo(folder, "status")[0] for _ in range(_ROUNDS))
        finally:
            down_s, _ = _coevo(folder, "down")
    figures = {"help_cpu_s": help_cpu_s, "status_s": status_s, "up_s": up_s, "down_s": down_s}
    return {name: round(seconds, 2) for name, seconds in figures.items()}


def _coevo(home: str, *arguments: str) -> tuple[float, float]:
    """Run a `coevo` command, and return its seconds of wall-clock time and of processor time."""
    start, cpu_start = time.perf_counter(), _children_cpu_s()
    subprocess.run([_COEVO, *arguments], env={**os.environ, "COEVO_HOME": home}, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start, _children_cpu_s() - cpu_start


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
