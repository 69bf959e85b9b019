"""The worker processes that compare answers: what they may do, and what happens when one hangs or dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from core.grading.grader import MAX_CHARS, Grader, GradingError, grade_pairs
from core.waiting.polling import wait_until
from tests.processes import status_of

HANGS = r"\sum_{n=1}^{10^{9}} \frac{1}{n^{n}}"  # comparing it takes more than 40 s of Python code


def test_a_worker_has_no_secrets_and_a_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVO_TEST_TOKEN", "hunter2")
    with Grader(memory_mb=1024) as limited:
        assert limited.compare("x+1", "1+x").verdict == "equal"
        (pid,) = limited.worker_pids
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        limits = Path(f"/proc/{pid}/limits").read_text()
    names = {entry.partition(b"=")[0].decode() for entry in environment if entry}
    assert b"hunter2" not in b"".join(environment)
    assert names <= {"PYTHONPATH", "PYTHONHASHSEED", "PYTHONUTF8", "OMP_NUM_THREADS", "LD_LIBRARY_PATH", "LC_CTYPE"}
    assert re.search(rf"Max address space +{1024 << 20} +{1024 << 20}", limits)
    assert re.search(r"Max file size +0 +0", limits)


def test_a_pair_beyond_the_memory_limit_is_unknown_and_grading_goes_on() -> None:
    with Grader(deadline=60, memory_mb=512) as limited:
        assert limited.compare("(2^{999999999})!", "x").reason == "memory"
        assert limited.compare("x+1", "1+x").verdict == "equal"


def test_a_worker_killed_in_the_middle_is_replaced() -> None:
    with Grader(deadline=60) as patient, ThreadPoolExecutor(1) as thread:
        patient.compare("x+1", "1+x")
        (pid,) = patient.worker_pids
        before = psutil.Process(pid).cpu_times().user
        waiting = thread.submit(patient.compare, HANGS, "1.29")
        until(lambda: psutil.Process(pid).cpu_times().user > before + 0.2)  # the worker is comparing the pair
        os.kill(pid, signal.SIGKILL)
        assert waiting.result().reason == "worker died: SIGKILL"
        assert patient.compare("x+2", "2+x").verdict == "equal"
        assert patient.worker_pids != [pid]


def test_a_worker_killed_while_idle_is_replaced_and_the_pair_is_graded() -> None:
    with Grader() as patient:
        patient.compare("x+1", "1+x")
        (pid,) = patient.worker_pids
        os.kill(pid, signal.SIGKILL)
        until(lambda: status_of(pid) is None)
        assert patient.compare("x+2", "2+x").verdict == "equal"


def test_the_pairs_after_a_hanging_one_are_graded_by_the_next_worker() -> None:
    with Grader(deadline=0.5) as hasty:
        hasty.compare("x+5", "5+x")
        (hanging_pid,) = hasty.worker_pids
        pairs = [("x+1", "1+x"), (HANGS, "1.29"), ("x+2", "2+x"), ("x+3", "x+4")]
        comparisons = hasty.compare_many(pairs)
        assert [c.verdict for c in comparisons] == ["equal", "unknown", "equal", "unequal"]
        assert comparisons[1].reason == "deadline"
        # The grader remembers the comparisons, in either order.
        assert comparisons == hasty.compare_many([(b, a) for a, b in pairs])
        assert hasty.worker_pids != [hanging_pid]
        until(lambda: status_of(hanging_pid) is None)


def test_long_answers_do_not_block_the_pipe_to_the_worker() -> None:
    pairs = [
        ("x+" + "\U0001f34e" * (MAX_CHARS - 10) + str(i), "x+" + "\U0001f34f" * (MAX_CHARS - 10)) for i in range(40)
    ]
    assert {(c.verdict, c.reason) for c in grade_pairs(pairs, deadline=20)} == {("unknown", "not parsed")}


def test_workers_end_when_the_grader_closes_and_when_their_parent_ends() -> None:
    with Grader(workers=2) as opened:
        opened.compare_many([(f"x+{i}", f"{i}+x") for i in range(20)])
        pids = opened.worker_pids
        assert pids
    assert not any(status_of(pid) for pid in pids)
    script = "import os; from core.grading.grader import Grader; g = Grader(); g.compare('x+1', '1+x'); "
    script += "print(*g.worker_pids, flush=True); os._exit(1)"
    orphan = int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False).stdout)
    until(lambda: status_of(orphan) is None)


def test_the_grader_of_a_process_keeps_its_worker_until_the_process_ends() -> None:
    script = "from core.grading.grader import process_grader as p; p().compare('x+1', '1+x'); first = p().worker_pids; "
    script += "p().compare('x+2', '2+x'); print(*first, *p().worker_pids)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    first, second = map(int, done.stdout.split())
    assert first == second
    assert status_of(first) is None


def test_a_worker_that_cannot_start_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with Grader(startup_limit=0.001) as hasty, pytest.raises(GradingError, match=r"was not ready after 0\.001 s"):
        hasty.compare("x+1", "1+x")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Grader() as broken, pytest.raises(GradingError, match="/bin/false ended before it was ready"):
        broken.compare("x+1", "1+x")


def until(condition: Callable[[], bool]) -> None:
    assert wait_until(condition, 60, 0.01)
