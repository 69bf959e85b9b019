"""`coevo runs log`: what the stages of a run said, and its warnings and errors."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from core.logs import LONGEST_MESSAGE
from orchestrator.cli.terminal import AsJson, RunName, opened, print_json, printable
from orchestrator.installation.home import Home
from storage import queries
from storage.files.run_logs import LogEvent, last_events
from storage.rows import RunStatus
from storage.session import Store

_POLL_S = 1.0
_MOST_EVENTS = 100_000  # more than a run's log files can have
_AT_WORK: tuple[RunStatus, ...] = ("created", "running", "paused")


def log(
    run: RunName,
    lines: Annotated[int, typer.Option(help="Print only so many lines, the last ones.", min=1)] = 1_000,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until the run ends, or until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a run's log: the result of each stage in a line, warnings and errors. Times are in UTC.

    The log is a file of the machine that runs the flows, below COEVO_HOME. With --json, each line is a JSON object.
    """
    coevo_home, store = opened()
    with store.read() as session:
        queries.runs.get_run(session, run)
    last = last_events(coevo_home.run_logs, run, lines)
    events = _followed(coevo_home, store, run, lines) if follow else iter(last)
    console, printed = Console(highlight=False, soft_wrap=True), False
    for event in events:
        printed = True
        if as_json:
            print_json(event, indent=None)
        else:
            style = {"INFO": "dim", "WARNING": "yellow", "ERROR": "red"}[event.level]
            head = f"[dim]{event.time:%Y-%m-%d %H:%M:%S}[/] [{style}]{event.level:<7}[/] "
            first, *others = event.message.splitlines() or [""]
            console.print(head + printable(first, LONGEST_MESSAGE))
            for line in others:
                console.print(printable(f"  {line}", LONGEST_MESSAGE))
    if not printed:
        print(f"run {run} has no log in {coevo_home.run_logs}", file=sys.stderr)


def _followed(coevo_home: Home, store: Store, run: str, lines: int) -> Iterator[LogEvent]:
    """The last lines, then the new ones, until the run has ended and all its lines were yielded."""
    newest: LogEvent | None = None
    count = lines
    while True:
        with store.read() as session:  # before the lines are read, so that the last ones are not missed
            at_work = queries.runs.get_run(session, run).status in _AT_WORK
        events = last_events(coevo_home.run_logs, run, count)
        count = _MOST_EVENTS  # all that are new
        # The newest event that was yielded may have been rotated away; then all others are new.
        start = events.index(newest) + 1 if newest in events else 0
        yield from events[start:]
        newest = events[-1] if events else newest
        if not at_work:
            return
        time.sleep(_POLL_S)
