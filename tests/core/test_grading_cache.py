from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from core.grading import grader
from core.grading.grader import Comparison, Grader


def test_threads_that_fill_a_full_cache_do_not_disturb_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the workers' threads do: each drops the oldest pair for its own."""
    monkeypatch.setattr(grader, "_CACHED_PAIRS", 50)
    shared, equal, interval = Grader(), Comparison("equal", None, 0.0), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as threads:
            for pending in [
                threads.submit(lambda i=i: [shared._cache_comparison((str(k), str(i)), equal) for k in range(20_000)])
                for i in range(6)
            ]:
                pending.result()
    finally:
        sys.setswitchinterval(interval)
    assert len(shared._cache) == 50
