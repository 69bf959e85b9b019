"""A clock that only pauses move on, so that a test of pauses takes no time."""

from __future__ import annotations

import pytest

from core import retries


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
    """Replaces the clock of all requests that are repeated."""
    clock = FakeClock()
    monkeypatch.setattr(retries, "CLOCK", retries.Clock(clock.now, clock.sleep, clock.async_sleep))
    return clock
