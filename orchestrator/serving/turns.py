"""Who may use the inference applications: one stage or command at a time, in the order in which they ask."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from orchestrator.installation.home import Home

_LOOK_S = 1.0  # between two looks at who has the applications
_UNKNOWN = "another process"


@contextmanager
def exclusive_use(home: Home, name: str, waiting: Callable[[str], None] = lambda _holder: None) -> Iterator[None]:
    """Wait until no other process uses the applications, and keep others from them while the block runs.

    `waiting` is called in this thread with the name of the process that has them, and again when another one gets them
    first; `name` is what others are told meanwhile. Two runs that swapped each other's checkpoints out would both wait
    for ever. The operating system releases the lock when the process dies.
    """
    home.path.mkdir(parents=True, exist_ok=True)
    with (home.path / "serving.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # A blocking request gets the lock in its turn, while one that is repeated could always come too late.
            acquired = threading.Event()

            def block() -> None:
                fcntl.flock(lock, fcntl.LOCK_EX)
                acquired.set()

            threading.Thread(target=block, name="turn", daemon=True).start()
            holder = None
            while not acquired.wait(0.0 if holder is None else _LOOK_S):
                lock.seek(0)
                if (now := lock.read() or _UNKNOWN) != holder:
                    waiting(now)
                    holder = now
        _write(lock, name)
        try:
            yield
        finally:
            _write(lock, "")


def _write(lock: TextIO, name: str) -> None:
    """Name the holder in the file. A killed holder leaves its name, which the next one replaces at once."""
    lock.truncate(0)
    lock.write(name)
    lock.flush()
