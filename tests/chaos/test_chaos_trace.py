"""The trace of a campaign's run, and the signal at the chosen fault point. Figures are counted by hand."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from core.processes.faultpoints import FaultPoint, faultpoint
from tests.chaos.trace import Hit, Strike, Trace, Tracer, redone

WORK: list[FaultPoint] = [
    "run claimed",
    "transaction committed",
    "stage claimed",
    "batch begun",
    "transaction committed",
]


def _hits(*hits: tuple[int, FaultPoint, str]) -> list[Hit]:
    return [Hit(attempt, 0.0, name, unit) for attempt, name, unit in hits]


def test_a_unit_that_is_begun_again_counts_for_the_attempt_that_had_begun_it() -> None:
    hits = _hits(
        (1, "batch begun", "a"),
        (1, "batch begun", "b"),
        (2, "batch begun", "b"),  # once again, after attempt 1
        (2, "step begun", "b"),  # another kind of unit
        (3, "batch begun", "b"),  # and after attempt 2
        (3, "step begun", "b"),
        (3, "transaction committed", "b"),
        (4, "run ended", ""),
    )
    assert redone(hits) == [1, 2, 0]


def test_what_a_suspended_process_does_after_the_next_has_begun_does_not_count() -> None:
    hits = _hits((1, "batch begun", "a"), (2, "batch begun", "a"), (1, "batch begun", "b"), (2, "batch begun", "b"))
    assert redone(hits) == [1]


@pytest.mark.parametrize(
    ("strike", "hits_before"),
    [
        (Strike(1), 1),
        (Strike(4), 4),
        (Strike(1, working=True), 3),
        (Strike(2, "transaction committed"), 5),
        (Strike(1, "transaction committed", working=True), 5),
        (Strike(1, "run ended"), 5),  # which it does not come to
    ],
)
def test_a_process_gets_its_signal_at_the_chosen_fault_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strike: Strike, hits_before: int
) -> None:
    signals, trace = list[tuple[int, int]](), Trace(tmp_path / "trace")
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append((pid, number)))
    at = _until_signal(Tracer(trace, 3, strike), signals)
    assert at == hits_before
    assert [(hit.attempt, hit.name) for hit in trace.hits()] == [(3, name) for name in WORK[:at]]
    assert signals == ([] if strike.name == "run ended" else [(os.getpid(), signal.SIGKILL)])


def test_no_process_is_suspended_within_a_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signals = list[tuple[int, int]]()
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append((pid, number)))
    tracer = Tracer(Trace(tmp_path / "trace"), 1, Strike(1, signal=signal.SIGSTOP))
    tracer("transaction complete", "")
    assert signals == []
    tracer("transaction committed", "")
    tracer("transaction committed", "")  # it gets its signal once
    assert signals == [(os.getpid(), signal.SIGSTOP)]


def _until_signal(tracer: Callable[[FaultPoint, str], None], signals: list[tuple[int, int]]) -> int:
    for number, name in enumerate(WORK, 1):
        tracer(name, "")
        if signals:
            return number
    return len(WORK)


def test_half_a_line_at_the_end_of_the_trace_is_left_out(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "trace")
    assert trace.hits() == []
    Tracer(trace, 1, None)("batch begun", "1/evaluate/5")
    trace.file.write_text(trace.file.read_text() + "1\t12.5\tbatch beg")
    assert [(hit.name, hit.unit) for hit in trace.hits()] == [("batch begun", "1/evaluate/5")]
    faultpoint("batch begun")  # this process is not armed
