"""Where the time of a demo's iteration goes: the arithmetic of intervals, and what is read from the replicas' logs."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.demo_time import Interval, _covered, _sampling


@pytest.mark.parametrize(
    ("intervals", "seconds"),
    [
        ([], 0),
        ([(12, 15)], 3),
        ([(11, 13), (15, 16)], 3),
        ([(11, 14), (13, 16)], 5),  # 13 to 14 went on twice and counts once
        ([(11, 18), (12, 13)], 7),  # one within another
        ([(12, 13), (11, 18)], 7),  # in any order
        ([(0, 12), (18, 99)], 4),  # only what lies in the span
        ([(0, 99)], 10),
        ([(0, 10), (20, 30)], 0),
        ([(0, 5), (1, 2)], 0),
    ],
)
def test_covered_counts_each_moment_of_the_span_10_to_20_once(intervals: list[Interval], seconds: float) -> None:
    assert _covered(intervals, (10, 20)) == seconds


def test_sampling_is_read_from_all_replicas_logs(tmp_path: Path) -> None:
    logs = tmp_path / "session_latest" / "logs" / "serve"
    logs.mkdir(parents=True)
    (logs / "replica_solver_a.log").write_text(
        "INFO 2026-01-02 03:04:05,500 solver a1 -- sampled 8 completions of 1 prompts, 90 tokens, in 1.500 s\n"
        "INFO 2026-01-02 03:04:06,000 solver a1 -- POST /v1/chat/completions 200 1502.1ms\n"
    )
    (logs / "replica_solver_b.log").write_text(
        "INFO 2026-01-02 03:04:10,000 solver b2 -- sampled 16 completions of 2 prompts, 9 tokens, in 0.250 s\n"
    )
    (logs / "proxy.log").write_text("INFO 2026-01-02 03:04:10,000 proxy -- sampled 1, in 9.000 s\n")
    home: Any = SimpleNamespace(ray_temp=tmp_path)
    ends = [datetime(2026, 1, 2, 3, 4, 5, 500_000).timestamp(), datetime(2026, 1, 2, 3, 4, 10).timestamp()]
    assert sorted(_sampling(home)) == [(ends[0] - 1.5, ends[0]), (ends[1] - 0.25, ends[1])]
