"""What coevo itself costs: of the demo's iterations, of a data set, of a request, before a training's first step."""

from __future__ import annotations

from typing import Any

from benchmarks import demo_time, train_start
from benchmarks.scripted import client_cpu_ms, data_set

_SIZES = (800, 8_000, 80_000)


def run() -> dict[str, Any]:
    """Shares and seconds; `growth` is of a data set by its questions, with ten votes each."""
    growth = {str(size): data_set(size) for size in _SIZES}  # small ones first, since memory is a process's at most
    client, starting, demo = client_cpu_ms(), train_start.run(), demo_time.run()
    return {
        "demo_overhead_share": demo["overhead_share"],
        "scripted_8000x10_s": growth["8000"]["total_s"],
        "client_cpu_ms_per_request": client["client_cpu_ms_per_request"],
        "train_start_s": starting["warm_s"],
        "growth": {size: row["total_s"] for size, row in growth.items()},
        "demo": demo,
        "data_sets": growth,
        "client": client,
        "train_start": starting,
    }
