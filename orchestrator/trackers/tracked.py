"""Starts the processes of a run's trackers, tells them of what is new, and ends them with the run.

Nothing here waits for a tracker before the run's end, and then at most `PATIENCE_S` for all of them. What a tracker has
not got then, it gets when the run is continued.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from select import PIPE_BUF
from signal import SIGKILL
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired

from core.logs import only_shown
from core.settings.trackers import TrackerName
from core.texts.unicode import from_json
from orchestrator.reporting import run_log
from orchestrator.run import Run
from orchestrator.trackers.process import PATIENCE_S

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Tracker:
    name: TrackerName
    process: Popen[bytes]
    warned: bool = False  # the log says that something is wrong with it


_at_work: dict[str, list[_Tracker]] = {}  # by run


@contextmanager
def tracked(run: Run) -> Iterator[None]:
    """Have the run's trackers get what is stored while the block runs."""
    for name in dict.fromkeys(run.config.trackers.to):
        with only_shown(f"run {run} in {name}"):
            _at_work.setdefault(run.name, []).append(_started(run, name))
    try:
        yield
    finally:
        if trackers := _at_work.pop(run.name, []):
            with run_log.recorded(run.home, run.name), only_shown(f"the last figures of run {run} in its trackers"):
                _end(trackers)


def tell_trackers(run: str, iteration: int) -> None:
    """Tell the trackers of a run that the store has something new of an iteration. This never waits."""
    for tracker in _at_work.get(run, ()):
        with only_shown(f"run {run} in {tracker.name}"):
            _write(tracker, f"{iteration}\n")
            _say_error(tracker)


def _started(run: Run, name: TrackerName) -> _Tracker:
    command = [sys.executable, "-m", "orchestrator.trackers.process", name, run.name, run.services.pages_url]
    # The trackers' own variables could name other addresses than the settings do.
    environment = {
        variable: value
        for variable, value in os.environ.items()
        if not variable.startswith(("WANDB_", "TRACKIO_")) or variable == "WANDB_API_KEY"
    }
    environment["COEVO_HOME"] = str(run.home.path)
    process = Popen(
        command, bufsize=0, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment, start_new_session=True
    )
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            os.set_blocking(pipe.fileno(), False)
    return _Tracker(name, process)


def _write(tracker: _Tracker, line: str) -> None:
    if tracker.process.stdin is not None:
        with suppress(BlockingIOError, BrokenPipeError):  # it hangs, or has ended
            tracker.process.stdin.write(line.encode())


def _end(trackers: list[_Tracker]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    for tracker in trackers:
        _write(tracker, "end\n")
    for tracker in trackers:
        with tracker.process as process:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except TimeoutExpired:
                _say_error(tracker)
                _say(tracker, f"it has not taken the run's last figures within {PATIENCE_S} s, and was ended")
                os.killpg(process.pid, SIGKILL)  # also what it has started
                process.wait()
            _say_error(tracker)


def _say_error(tracker: _Tracker) -> None:
    """Log the first error of a tracker, if it has had one."""
    line: bytes | None = None
    if tracker.process.stdout is not None:
        with suppress(BlockingIOError):
            line = os.read(tracker.process.stdout.fileno(), PIPE_BUF)
    if line:
        _say(tracker, from_json(line))
    elif code := tracker.process.poll():
        _say(tracker, f"its process ended with exit code {code}")


def _say(tracker: _Tracker, problem: str) -> None:
    if not tracker.warned:
        _log.warning("trackers.to: %s: %s; the run goes on", tracker.name, problem)
    tracker.warned = True
