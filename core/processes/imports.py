"""Imports that take seconds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause Python's garbage collection while the block imports modules, and leave these out of it for ever.

    Modules are never freed, but each collection would look at all of them again. This takes a sixth of the time in
    which `orchestrator.flows` or torch and transformers are imported.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
