"""What a person waits for at the command line: the help, the status, the services' start and end."""

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
    """Medians, in seconds: `help_cpu_s` of processor time, the others as a clock shows them; `up_s` and `down_s` once,
    in a home that is new."""
    with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder:
        help_cpu_s = statistics.median(_coevo(folder, "--help")[1] for _ in range(_ROUNDS))
        up_s, _ = _coevo(folder, "up", "--free-ports")
        try:
            status_s = statistics.median(_coevo(folder, "status")[0] for _ in range(_ROUNDS))
        finally:
            down_s, _ = _coevo(folder, "down")
    medians = {"help_cpu_s": help_cpu_s, "status_s": status_s, "up_s": up_s, "down_s": down_s}
    return {name: round(seconds, 2) for name, seconds in medians.items()}


def _coevo(home: str, *arguments: str) -> tuple[float, float]:
    """Run the command; seconds by the clock, and of processor time."""
    began, spent = time.perf_counter(), _children_cpu_s()
    subprocess.run([_COEVO, *arguments], env={**os.environ, "COEVO_HOME": home}, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began, _children_cpu_s() - spent


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
