"""A clock that only pauses move on, so that a test of pauses takes no time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core.waiting import clock


class FakeClock:
    """Seconds since its making, and the pauses that were made."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.seconds += seconds

    async def async_sleep(self, seconds: float) -> None:
        self.sleep(seconds)


def fake_clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Replaces the clock of this process."""
    fake = FakeClock()
    for name in ("now", "sleep", "async_sleep"):
        monkeypatch.setattr(clock, name, getattr(fake, name))
    return fake


def clock_that_runs_while(condition: Callable[[], bool], monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    """Replaces the clock by one that goes on by `step_s` seconds each time it is read while the condition is true."""
    fake = FakeClock()

    def now() -> float:
        fake.seconds += step_s if condition() else 0.0
        return fake.seconds

    monkeypatch.setattr(clock, "now", now)
