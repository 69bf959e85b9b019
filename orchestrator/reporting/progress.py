"""Shows the progress of a stage as an artifact in Prefect and as a bar in the terminal of `coevo run`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from core.logs import only_shown
from core.settings.config import RunConfig
from core.types import StageKey
from orchestrator.plan import plan
from orchestrator.reporting.artifacts import StageProgress
from orchestrator.run import Progress
from services.views.remaining import range_text, remaining_in
from storage import queries
from storage.session import Store

_EVERY_S = 2.0  # least time between two updates of an artifact


def time_left(store: Store, run: str, config: RunConfig) -> str:
    """The remaining time of the stage that a run is at, for a person; empty if nothing is known."""
    with store.read() as session:
        left = remaining_in(session, queries.runs.get_run(session, run), [*plan(config)]).of_stage
    return f"{range_text(left.low, left.high)} left" if left else ""


def _shown_time(time_left: Callable[[], str]) -> str:
    with only_shown("the remaining time"):
        return time_left()
    return ""


@contextmanager
def reported(key: StageKey, store_progress: Progress, time_left: Callable[[], str] = lambda: "") -> Iterator[Progress]:
    """Show the progress of one stage while the block runs, which gets the function that reports it. If the block raises
    an error, Prefect goes on showing how far the stage came.

    On a terminal it is one line, which is overwritten and ends with the `time_left`; in a pipe there is none.

    `store_progress` is called whenever the artifact is updated; it stores the progress for readers other than Prefect.
    A total of 0 means that there is only a note. It is stored at once, and so is the first progress after it.
    """
    title = f"{key.stage} {key.iteration}"
    artifact = StageProgress(key)
    console = Console(file=sys.stderr)
    updated, last_total = 0.0, 0
    columns = (TextColumn("{task.description:22}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn())
    left = TextColumn("{task.fields[left]}")
    with Bars(*columns, left, console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task(title, total=None, note="", left=_shown_time(time_left) if console.is_terminal else "")

        def report(done: int, total: int, note: str) -> None:
            nonlocal updated, last_total
            bars.update(bar, completed=done, total=total or None, note=f"{done}/{total} {note}" if total else note)
            if time.monotonic() - updated > _EVERY_S or done == total or total != last_total:
                updated, last_total = time.monotonic(), total
                artifact.update(100 * done / max(total, 1))
                store_progress(done, total, note)
                if console.is_terminal:
                    bars.update(bar, left=_shown_time(time_left))

        yield report
    artifact.remove()
