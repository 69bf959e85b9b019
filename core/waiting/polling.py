"""Waiting until another process has done something."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(ready: Callable[[], bool], within_s: float, poll_s: float) -> bool:
    """Call `ready` every `poll_s` seconds until it returns True, and return True; return False if it has not done so
    within `within_s` seconds. An exception from `ready` is not caught."""
    deadline = time.monotonic() + within_s
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_s)
    return True
