"""The figures of `python -m benchmarks soak`."""

from __future__ import annotations

from benchmarks.rest_load import Load, Timing
from benchmarks.soak import _failures, _growth


def test_growth_is_from_the_warm_samples_to_the_last_ones() -> None:
    start, warm, peak, end = [100.0] * 2, [200.0, 210.0], [400.0] * 14, [230.0, 240.0]
    assert _growth({"api": [*start, *warm, *peak, *end]}) == {
        "api": {"warm": 205.0, "end": 235.0, "growth": 30.0, "most": 400.0}
    }
    assert _growth({"api": [100.0]})["api"]["growth"] == 0


def test_failures_are_counted_by_request_and_status() -> None:
    timings = [Timing("/a", 0.1, 200), Timing("/a", 0.1, 503), Timing("/a", 0.1, 503), Timing("/b", 30.0, None)]
    assert _failures(Load(timings, 30.0)) == {"/a: 503": 2, "/b: no answer": 1}
