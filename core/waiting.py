"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def became(ready: Callable[[], bool], within_s: float, poll_s: float) -> bool:
    """Whether `ready` was true before `within_s` seconds were over, asked every `poll_s`; what it raises goes on."""
    deadline = time.monotonic() + within_s
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_s)
    return True
