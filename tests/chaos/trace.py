"""What the process of a run does at its fault points: it writes each to a trace, and is killed at the chosen one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

from core.processes.faultpoints import FaultPoint

BEGINS_WORK: FaultPoint = "stage claimed"  # at the first one, a resumed run does something new
IN_TRANSACTION: FaultPoint = "transaction complete"
_UNITS: tuple[FaultPoint, ...] = ("batch begun", "step begun")  # work that a kill may cost


class Hit(NamedTuple):
    """A fault point that a process came to. `at` is a time of `time.monotonic`, which all processes share."""

    attempt: int
    at: float
    name: FaultPoint
    unit: str


@dataclass(frozen=True, slots=True)
class Strike:
    """A process gets a signal at the `nth` fault point from its start; of those with this `name`, if there is one;
    after it has begun to work, if `working`."""

    nth: int
    name: FaultPoint | None = None
    working: bool = False
    signal: signal.Signals = signal.SIGKILL


class Trace:
    """The trace of a run: a file to which the processes that work on it append, one after another."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def hits(self) -> list[Hit]:
        """All complete lines: a killed process may leave half a line at the end."""
        if not self.file.exists():
            return []
        lines = [line.split("\t") for line in self.file.read_text(encoding="utf-8").splitlines() if line.endswith("\t")]
        return [Hit(int(attempt), float(at), cast(FaultPoint, name), unit) for attempt, at, name, unit, _ in lines]

    def of_attempt(self, number: int) -> list[Hit]:
        return [hit for hit in self.hits() if hit.attempt == number]


def redone(hits: Iterable[Hit]) -> list[int]:
    """For each attempt but the last: how many of the units of work that it had begun were begun again after it.

    What a suspended process does after the next one has begun does not count.
    """
    counts, newest, last_attempt = dict[int, int](), 0, dict[tuple[str, str], int]()
    for hit in hits:
        newest = max(newest, hit.attempt)
        counts.setdefault(hit.attempt, 0)
        if hit.name not in _UNITS or hit.attempt < newest:
            continue
        key = (hit.name, hit.unit)
        if (earlier := last_attempt.get(key)) is not None and earlier != hit.attempt:
            counts[earlier] += 1
        last_attempt[key] = hit.attempt
    return [counts[attempt] for attempt in sorted(counts) if attempt != newest]


class Tracer:
    """The action of a process's fault points (`core.processes.faultpoints.arm`)."""

    def __init__(self, trace: Trace, attempt: int, strike: Strike | None) -> None:
        self._descriptor = os.open(trace.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._attempt, self._strike = attempt, strike
        self._lock, self._count, self._working = threading.Lock(), 0, False

    def __call__(self, name: FaultPoint, unit: str) -> None:
        with self._lock:
            # One write of one line, so lines of several threads are not mixed.
            os.write(self._descriptor, f"{self._attempt}\t{time.monotonic():.4f}\t{name}\t{unit}\t\n".encode())
            self._working = self._working or name == BEGINS_WORK
            if (strike := self._strike) is None or not self._counts(strike, name):
                return
            self._count += 1
            # A process that is suspended within a transaction would keep all others from writing.
            if self._count >= strike.nth and not (strike.signal == signal.SIGSTOP and name == IN_TRANSACTION):
                self._strike = None
        if self._strike is None:
            os.kill(os.getpid(), strike.signal)

    def _counts(self, strike: Strike, name: FaultPoint) -> bool:
        return (self._working or not strike.working) and strike.name in (None, name)
