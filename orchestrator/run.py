"""A run at work: its name, where it is stored, its settings and the services that it uses.

Whoever begins the work opens it once, hands it on, and closes it once. `Progress` and `BATCH` belong to the work on a
run too. This file knows no flow, no stage and no ledger; they know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic

from typing_extensions import TypeVar, override

from core.settings.config import RunConfig
from orchestrator.installation.home import Home, Services
from storage.session import Store

BATCH = 128  # questions per transaction; not a setting: a run is reproducible only with the same number
Progress = Callable[[int, int, str], None]  # done, total, note; a total of 0: there is only a note

# The settings of any kind of run, or of the only kind that has the stage.
Config_co = TypeVar("Config_co", bound=RunConfig, default=RunConfig, covariant=True)


@dataclass(frozen=True, slots=True)
class Run(Generic[Config_co]):
    """A run at work. `config` is what is stored with it, or will be once it is created; nobody changes that while a
    process has the run."""

    name: str
    home: Home
    store: Store
    services: Services
    config: Config_co

    @override
    def __str__(self) -> str:
        return self.name


# Prefect hands a flow JSON and nothing else. A run that this process has open already is found here.
_open_run: ContextVar[Run | None] = ContextVar("open run", default=None)


@contextmanager
def at_hand(run: Run) -> Iterator[None]:
    """Have the flows that are called in the block work on this run, as the caller has opened and checked it."""
    token = _open_run.set(run)
    try:
        yield
    finally:
        _open_run.reset(token)


def run_at_hand() -> Run | None:
    return _open_run.get()
