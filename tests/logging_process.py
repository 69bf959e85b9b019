"""Makes the process of a test log as coevo's own processes do."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from core import logs


@contextmanager
def console(process: str, secrets: Iterable[str] = ()) -> Iterator[None]:
    """Have this process log to standard error under this name while the block runs."""
    root = logging.getLogger()
    handlers, hooks = [*root.handlers], (sys.excepthook, threading.excepthook)
    with patch.object(logs._Process, "name", process):
        logs.configure(process, secrets)
        try:
            yield
        finally:
            root.handlers[:] = handlers
            sys.excepthook, threading.excepthook = hooks
            logging.captureWarnings(False)
