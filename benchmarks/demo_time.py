"""Measures where the time of the demo's iterations goes, and how much is neither sampling, nor training, nor grading.

Training is the time of the training steps of both roles, including the Challenger's reward, which asks the Solver.
Sampling is the other time in which a replica sampled, according to its log. Grading is the time in which answers were
voted on or compared. Time in which both happened counts once. An iteration lasts from the end of the previous one to
the end of its last stage.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.services import printed_by
from orchestrator.installation import cluster
from orchestrator.installation.home import Home
from orchestrator.installation.ports import ANY_FREE
from storage import queries
from storage.rows import StageRow
from storage.session import Store, open_store

RUN = "demo"
_STEP = ("sample_seconds", "reward_seconds", "update_seconds")
_SAMPLED = re.compile(r"sampled .* in ([0-9.]+) s")

Interval = tuple[float, float]  # begin and end, in seconds since the epoch


def run(iterations: int = 3) -> dict[str, Any]:
    """{overhead_share, wall_s, training_s, sampling_and_grading_s, overhead_s, iterations}.

    `iterations` is a list with the same figures of each iteration, and `overhead`: its seconds in each stage and
    between the stages.
    """
    with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder:
        home = Home(Path(folder))
        store = open_store(home.database, create=True)
        services = cluster.up(home, ANY_FREE, lambda _line: None)
        try:
            arguments = RUN, str(iterations)
            grading = printed_by("benchmarks.demo_time_run", *arguments, home=home, services=services)
            work_intervals = [*((begin, end) for begin, end in grading), *_sampling(home)]
            rows = [_iteration(store, iteration, work_intervals) for iteration in range(1, iterations + 1)]
        finally:
            cluster.down(home)
    totals = {name: round(sum(row[name] for row in rows), 2) for name in rows[0] if name.endswith("_s")}
    return {"overhead_share": round(totals["overhead_s"] / totals["wall_s"], 4), **totals, "iterations": rows}


def _sampling(home: Home) -> list[Interval]:
    """The intervals in which the replicas sampled, according to their logs, whose lines are JSON.

    Raises `RuntimeError` if the logs say of none, because all sampling would be counted as overhead then.
    """
    folder = home.ray_temp / "session_latest" / "logs" / "serve"
    intervals = []
    for log in folder.glob("replica_*.log"):
        for record in map(json.loads, log.read_text().splitlines()):
            if sampled := _SAMPLED.fullmatch(record["message"]):
                end = datetime.fromisoformat(record["asctime"].replace(",", ".")).timestamp()
                intervals.append((end - float(sampled[1]), end))
    if not intervals:
        raise RuntimeError(f"{folder}: expected replicas that sampled, got none in their logs")
    return intervals


def _iteration(store: Store, iteration: int, work_intervals: Sequence[Interval]) -> dict[str, Any]:
    """The figures of an iteration, given the intervals of sampling and grading."""
    with store.read() as session:
        rows = queries.ledger.stages_of(session, RUN)
        training = {
            f"train_{role}": sum(
                metric.value or 0.0
                for name in _STEP
                for metric in queries.figures.train_metrics_of(session, RUN, iteration=iteration, role=role, name=name)
            )
            for role in ("challenger", "solver")
        }
    previous_end = max(_span(row)[1] for row in rows if row.iteration == iteration - 1)
    spans = {str(row.stage): _span(row) for row in rows if row.iteration == iteration}
    wall = max(end for _, end in spans.values()) - previous_end
    useful = {
        stage: training[stage] if stage in training else _covered(work_intervals, span) for stage, span in spans.items()
    }
    overhead = {stage: end - begin - useful[stage] for stage, (begin, end) in spans.items()}
    overhead["between"] = wall - sum(end - begin for begin, end in spans.values())
    return {
        "wall_s": round(wall, 2),
        "training_s": round(sum(training.values()), 2),
        "sampling_and_grading_s": round(sum(useful.values()) - sum(training.values()), 2),
        "overhead_s": round(sum(overhead.values()), 2),
        "overhead": {stage: round(seconds, 2) for stage, seconds in overhead.items()},
    }


def _span(row: StageRow) -> Interval:
    if row.started_at is None or row.finished_at is None:
        raise RuntimeError(f"{row.stage} of iteration {row.iteration} has not ended")
    return row.started_at.timestamp(), row.finished_at.timestamp()


def _covered(intervals: Iterable[Interval], span: Interval) -> float:
    """The seconds of `span` that at least one of the intervals covers."""
    total, covered_until = 0.0, span[0]
    for interval_begin, interval_end in sorted(intervals):
        begin, end = max(interval_begin, covered_until), min(interval_end, span[1])
        if end > begin:
            total, covered_until = total + end - begin, end
    return total
