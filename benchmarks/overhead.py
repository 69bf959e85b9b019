"""Measures coevo's own overhead: in the demo's iterations, for a data set, per request, and before a training."""

from __future__ import annotations

from typing import Any

from benchmarks import demo_time, train_start
from benchmarks.scripted import client_cpu_ms, data_set

_SIZES = (800, 8_000, 80_000)


def run() -> dict[str, Any]:
    """The figures with a target, and those of each part. `data_sets` are by their number of questions."""
    # The small data sets come first, because each row reports the process's peak memory so far.
    data_sets = {str(size): data_set(size) for size in _SIZES}
    client, starting, demo = client_cpu_ms(), train_start.run(), demo_time.run()
    return {
        "demo_overhead_share": demo["overhead_share"],
        "scripted_8000x10_s": data_sets["8000"]["total_s"],
        "client_cpu_ms_per_request": client["client_cpu_ms_per_request"],
        "train_start_s": starting["warm_s"],
        "demo": demo,
        "data_sets": data_sets,
        "client": client,
        "train_start": starting,
    }
