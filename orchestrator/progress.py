"""How far a stage is: as an artifact in Prefect, and as a bar in the terminal of whoever started the run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from core.types import Stage
from orchestrator.artifacts import StageProgress

Report = Callable[[int, int, str], None]  # done, of how many, a word on it

_EVERY_S = 2.0  # an artifact is updated no more often


@contextmanager
def shown(run: str, iteration: int, stage: Stage, note_it: Report) -> Iterator[Report]:
    """Show the progress of one stage while the block runs; gives the function to report it with.

    `note_it` is told as often as Prefect is: it writes the progress where others than Prefect look for it.
    """
    title = f"{stage} {iteration}"
    artifact = StageProgress(run, title)
    console = Console(file=sys.stderr)
    started, updated = time.monotonic(), 0.0
    columns = (TextColumn("{task.description:22}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task(title, total=None, note="")

        def report(done: int, total: int, note: str) -> None:
            nonlocal updated
            bars.update(bar, completed=done, total=total, note=f"{done}/{total} {note}")
            if time.monotonic() - updated > _EVERY_S or done == total:
                updated = time.monotonic()
                artifact.update(100 * done / max(total, 1))
                note_it(done, total, note)

        yield report
    artifact.update(100.0)
    console.print(f"{title:22} {time.monotonic() - started:6.1f} s", highlight=False)
