"""A process that works on a run. Usually it is a fork of this one, so that it need not import anything."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core.processes.faultpoints import arm
from tests.chaos.trace import Strike, Trace, Tracer

_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: `code` is its exit code, or minus the number of the signal that ended it."""

    code: int
    seconds: float

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Attempt(ABC):
    """A process that works on a run until it ends or is killed."""

    def __init__(self, number: int, strike: Strike | None) -> None:
        self.number, self.strike, self.started, self.suspended = number, strike, time.monotonic(), False
        self.message = ""  # why it failed, if it is not in the campaign's log

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self.started

    @abstractmethod
    def poll(self) -> Ended | None:
        """How it ended, or None while it works or is suspended."""

    @abstractmethod
    def kill(self) -> None:
        """Kill it with SIGKILL."""

    @abstractmethod
    def end_hanging(self) -> None:
        """Kill it, and leave what can be known of it in the campaign's log."""

    def wait(self, patience_s: float, until: Callable[[], bool] = lambda: False) -> Ended | None:
        """How it ended; None if it works on after `patience_s`, or since `until`, which is called again and again,
        returned True."""
        deadline = time.monotonic() + patience_s
        while (ended := self.poll()) is None and not until() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return ended


class Fork(Attempt):
    """A fork of this process that calls `work` and ends. This process must have no other thread."""

    def __init__(self, work: Callable[[], object], trace: Trace, number: int, strike: Strike | None, log: Path) -> None:
        super().__init__(number, strike)
        self._ended: Ended | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _in_the_child(work, Tracer(trace, number, strike), log)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def go_on(self) -> None:
        """End its suspension."""
        os.kill(self.pid, signal.SIGCONT)
        self.suspended = False

    def poll(self) -> Ended | None:
        if self._ended is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                self.suspended = True
            elif pid:
                self._ended = Ended(os.waitstatus_to_exitcode(status), self.seconds)
        return self._ended

    def end_hanging(self) -> None:
        """Have it write the stacks of its threads to its log, and kill it."""
        os.kill(self.pid, signal.SIGCONT)
        os.kill(self.pid, signal.SIGUSR1)
        self.wait(1.0)  # nothing tells when the stacks are written
        self.kill()
        self.wait(10.0)


def _in_the_child(work: Callable[[], object], tracer: Tracer, log: Path) -> None:
    code = 1
    try:
        output = log.open("a", encoding="utf-8")
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
        faulthandler.register(signal.SIGUSR1, file=output)
        arm(tracer)
        work()
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
