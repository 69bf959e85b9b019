"""The clock and the pauses of what waits for other processes. Tests replace them by those of a fake clock."""

from __future__ import annotations

import asyncio
import time


def now() -> float:
    """Seconds of a clock that is never set back."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    time.sleep(seconds)


async def async_sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)
