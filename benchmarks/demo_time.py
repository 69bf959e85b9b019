"""Where the time of the demo's iterations goes, and how much of it is neither sampling, nor training, nor grading.

Training is what the steps of both roles took, whose reward asks the Solver. Otherwise sampling is whenever a replica
sampled, as its log says, and grading whenever answers were voted on or compared; where both went on at once, the time
counts once. An iteration lasts from the end of the one before to the end of its last stage.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.services import printed_by
from orchestrator.installation import cluster
from orchestrator.installation.home import Home
from storage import queries
from storage.rows import StageRow
from storage.session import Store, open_store

RUN = "demo"
_STEP = ("sample_seconds", "reward_seconds", "update_seconds")
_SAMPLED = re.compile(r"^INFO (\S+ \S+) .*-- sampled .* in ([0-9.]+) s$", re.MULTILINE)

Interval = tuple[float, float]  # its begin and end, in seconds since the epoch


def run(iterations: int = 3) -> dict[str, Any]:
    """{overhead_share, wall_s, training_s, sampling_and_grading_s, overhead_s, iterations: [the same of each, with
    overhead_s of each stage and between them]}."""
    with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder:
        home = Home(Path(folder))
        store = open_store(home.database, create=True)
        services = cluster.up(home, cluster.Ports(0, 0, 0, 0, 0), lambda _line: None)
        try:
            arguments = RUN, str(iterations)
            grading = printed_by("benchmarks.demo_time_run", *arguments, home=home, services=services)
            at_work = [*((begin, end) for begin, end in grading), *_sampling(home)]
            parts = [_iteration(store, t, at_work) for t in range(1, iterations + 1)]
        finally:
            cluster.down(home)
    total = {name: round(sum(part[name] for part in parts), 2) for name in parts[0] if name.endswith("_s")}
    return {"overhead_share": round(total["overhead_s"] / total["wall_s"], 4), **total, "iterations": parts}


def _sampling(home: Home) -> list[Interval]:
    """When the replicas sampled, by their logs."""
    logs = (home.ray_temp / "session_latest" / "logs" / "serve").glob("replica_*.log")
    intervals = []
    for log in logs:
        for at, seconds in _SAMPLED.findall(log.read_text()):
            end = datetime.fromisoformat(at.replace(",", ".")).timestamp()
            intervals.append((end - float(seconds), end))
    return intervals


def _iteration(store: Store, t: int, at_work: Sequence[Interval]) -> dict[str, Any]:
    with store.read() as session:
        rows = queries.ledger.stages_of(session, RUN)
        steps = {
            f"train_{role}": sum(
                metric.value or 0.0
                for name in _STEP
                for metric in queries.figures.train_metrics_of(session, RUN, iteration=t, role=role, name=name)
            )
            for role in ("challenger", "solver")
        }
    before = max(_span(row)[1] for row in rows if row.iteration == t - 1)
    spans = {str(row.stage): _span(row) for row in rows if row.iteration == t}
    wall = max(end for _, end in spans.values()) - before
    useful = {stage: steps[stage] if stage in steps else _covered(at_work, span) for stage, span in spans.items()}
    overhead = {stage: end - begin - useful[stage] for stage, (begin, end) in spans.items()}
    overhead["between"] = wall - sum(end - begin for begin, end in spans.values())
    return {
        "wall_s": round(wall, 2),
        "training_s": round(sum(steps.values()), 2),
        "sampling_and_grading_s": round(sum(useful.values()) - sum(steps.values()), 2),
        "overhead_s": round(sum(overhead.values()), 2),
        "overhead": {stage: round(seconds, 2) for stage, seconds in overhead.items()},
    }


def _span(row: StageRow) -> Interval:
    if row.started_at is None or row.finished_at is None:
        raise RuntimeError(f"{row.stage} of iteration {row.iteration} has not ended")
    return row.started_at.timestamp(), row.finished_at.timestamp()


def _covered(intervals: Iterable[Interval], span: Interval) -> float:
    """How long at least one of the intervals went on within the span, in seconds."""
    total, until = 0.0, span[0]
    for begin, end in sorted(intervals):
        begin, end = max(begin, until), min(end, span[1])  # noqa: PLW2901 (what of it is new)
        if end > begin:
            total, until = total + end - begin, end
    return total
