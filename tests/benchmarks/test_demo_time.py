"""Where the time of a demo's iteration goes: the arithmetic of intervals, and what is read from the replicas' logs."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.demo_time import RUN, Interval, _covered, _iteration, _sampling
from core.settings.parsing import load_config
from orchestrator.installation.home import PRESETS
from storage import queries
from storage.models import Stages
from storage.session import open_store

_BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("intervals", "seconds"),
    [
        ([], 0),
        ([(12, 15)], 3),
        ([(11, 13), (15, 16)], 3),
        ([(11, 14), (13, 16)], 5),  # 13 to 14 is in both intervals and counts once
        ([(11, 18), (12, 13)], 7),  # one interval lies within the other
        ([(12, 13), (11, 18)], 7),  # the order does not matter
        ([(0, 12), (18, 99)], 4),  # only the part within the span counts
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

    def write(name: str, *records: tuple[str, str]) -> None:
        lines = (json.dumps({"asctime": f"2026-01-02 03:04:{at}", "message": message}) for at, message in records)
        (logs / name).write_text("".join(f"{line}\n" for line in lines))

    home: Any = SimpleNamespace(ray_temp=tmp_path)
    write("replica_challenger_a.log", ("06,000", "POST /v1/chat/completions 200 1502.1ms"))
    write("proxy.log", ("10,000", "sampled 1 completions of 1 prompts, 1 tokens, in 9.000 s"))
    with pytest.raises(RuntimeError, match=re.escape(str(logs))):
        _sampling(home)
    write("replica_solver_a.log", ("05,500", "sampled 8 completions of 1 prompts, 90 tokens, in 1.500 s"))
    write("replica_solver_b.log", ("10,000", "sampled 16 completions of 2 prompts, 9 tokens, in 0.250 s"))
    ends = [datetime(2026, 1, 2, 3, 4, 5, 500_000).timestamp(), datetime(2026, 1, 2, 3, 4, 10).timestamp()]
    assert sorted(_sampling(home)) == [(ends[0] - 1.5, ends[0]), (ends[1] - 0.25, ends[1])]


def test_an_iteration_s_overhead_is_what_no_training_sampling_or_grading_took(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/coevo.db", create=True)
    spans = {(0, "evaluate"): (0, 10), (1, "train_solver"): (12, 32), (1, "evaluate"): (33, 43)}
    with store.write() as session:
        queries.runs.create_run(session, name=RUN, config=load_config(PRESETS / "demo.toml"))
        session.add_all(
            Stages(
                **{"run": RUN, "iteration": t, "stage": stage, "status": "done", "owner": "", "attempt": 1},
                lease_expires=_BEGIN,
                started_at=_BEGIN + timedelta(seconds=begin),
                finished_at=_BEGIN + timedelta(seconds=end),
            )
            for (t, stage), (begin, end) in spans.items()
        )
        for step in (1, 2):
            seconds = {"sample_seconds": 4.0, "reward_seconds": 1.5, "update_seconds": 3.0, "reward_mean": 99.0}
            queries.figures.add_train_metrics(session, run=RUN, iteration=1, role="solver", step=step, metrics=seconds)
    zero = _BEGIN.timestamp()
    # The first interval lies within the training, whose steps have already counted it.
    at_work = [(zero + begin, zero + end) for begin, end in ((13, 20), (34, 40), (39, 42.5))]
    assert _iteration(store, 1, at_work) == {
        "wall_s": 33.0,  # begins at the end of iteration 0
        "training_s": 17.0,
        "sampling_and_grading_s": 8.5,
        "overhead_s": 7.5,
        "overhead": {"train_solver": 3.0, "evaluate": 1.5, "between": 3.0},
    }
