"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(ready: Callable[[], bool], within_s: float, poll_s: float) -> bool:
    """Call `ready` every `poll_s` seconds until it is true; False if it is not within `within_s` seconds. What `ready`
    raises is not caught."""
    deadline = time.monotonic() + within_s
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_s)
    return True
