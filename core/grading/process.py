"""One grading worker as its parent sees it: started on demand, asked one pair at a time, killed when it is late."""

from __future__ import annotations

import json
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence

from core.errors import CoevoError
from core.grading.equality import Outcome

STARTUP_LIMIT = 60.0  # seconds for an interpreter and its imports on a busy machine
_ALARM_MARGIN = 5  # seconds after the deadline at which a worker without a parent ends itself
_CHUNK = 65_536  # bytes


class GradingError(CoevoError):
    """No worker can be started, so that grading cannot go on at all."""


class WorkerProcess:
    """The process, or the promise of one: nothing runs before the first `ask`, nor after a kill until the next."""

    def __init__(self, deadline: float, memory_mb: int, startup_limit: float = STARTUP_LIMIT) -> None:
        self._deadline, self._memory_mb, self._startup_limit = deadline, memory_mb, startup_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""  # beyond the last whole line
        self._ending: list[subprocess.Popen[bytes]] = []  # killed, perhaps not gone yet

    @property
    def pid(self) -> int | None:
        """The running process; None when there is none."""
        return self._process.pid if self._process else None

    def ask(self, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[Outcome, float]]:
        """For each pair of normalised texts its outcome, and the seconds from when a ready process turned to it.

        All pairs are handed over at once, so keep them few: they must fit into a pipe. Late, crashed and out of memory
        are unknown, and a fresh process takes up the rest. Errors: GradingError when no process gets ready.
        """
        left = deque((json.dumps(pair, ensure_ascii=False) + "\n").encode(errors="replace") for pair in pairs)
        while left:
            process = self._hand_over(b"".join(left))
            while left and self._process is process:
                start = time.monotonic()
                outcome = self._outcome(process)
                left.popleft()
                yield outcome, time.monotonic() - start

    def _outcome(self, process: subprocess.Popen[bytes]) -> Outcome:
        """The next reply. A process that owes one, or that ran short of memory, is not trusted with another pair."""
        reply = self._read_line(process, self._deadline)
        if reply is None:
            outcome = Outcome("unknown", "deadline")
        elif not reply:
            outcome = Outcome("unknown", f"worker died: {_cause(process)}")
        else:
            outcome = Outcome(*json.loads(reply))
        if not reply or outcome.reason == "memory":
            self._give_up()
        return outcome

    def kill(self) -> None:
        """End the process and whatever it started, and wait until it is gone."""
        self._give_up()
        while self._ending:
            self._ending.pop().wait()

    def _give_up(self) -> None:
        """Kill without waiting: giving back two gigabytes takes the system a while, and nobody needs to see it done."""
        if self._process is None:
            return
        process, self._process, self._received = self._process, None, b""
        if process.poll() is None:  # not reaped, so that the number is still its own
            os.killpg(process.pid, signal.SIGKILL)  # it leads its own group
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        self._ending = [ending for ending in (*self._ending, process) if ending.poll() is None]

    def _hand_over(self, request: bytes) -> subprocess.Popen[bytes]:
        """The process that has got the request; one that died while idle is replaced, once."""
        for _ in range(2):
            process = self._process or self._start()
            assert process.stdin is not None
            try:
                process.stdin.write(request)  # less than a pipe holds, so that it cannot block
            except BrokenPipeError:
                self._give_up()
            else:
                return process
        raise GradingError("grading worker: expected it to take a pair, but it ended twice while idle")

    def _start(self) -> subprocess.Popen[bytes]:
        alarm = math.ceil(self._deadline) + _ALARM_MARGIN
        process = subprocess.Popen(
            [sys.executable, "-P", "-s", "-m", "core.grading.worker", str(self._memory_mb), str(alarm)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env=_environment(),
            start_new_session=True,
        )
        self._process = process
        ready = self._read_line(process, self._startup_limit)
        if ready:
            return process
        self._process, self._received = None, b""
        process.kill()
        errors = process.communicate()[1].decode(errors="replace").strip()[-500:]
        failure = "ended before it was ready" if ready == b"" else f"was not ready after {self._startup_limit:g} s"
        raise GradingError(f"grading worker: {sys.executable} {failure}: {errors or 'it said nothing'}")

    def _read_line(self, process: subprocess.Popen[bytes], limit: float) -> bytes | None:
        """The next line of its output; b"" when it closed the pipe, None when `limit` seconds passed first."""
        assert process.stdout is not None
        end = time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._received:
                if not selector.select(max(0.0, end - time.monotonic())):
                    return None
                chunk = os.read(process.stdout.fileno(), _CHUNK)
                if not chunk:
                    return b""
                self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return line


def _environment() -> dict[str, str]:
    """No variable of ours but the import path: a worker has no use for tokens, proxies or home folders.

    Fixed hashing makes sympy's ordering, and with it a verdict, the same in every worker.
    """
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return {**kept, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"}


def _cause(process: subprocess.Popen[bytes]) -> str:
    """How a process that closed its pipe ended."""
    try:
        code = process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return "closed its pipe"
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"
