"""One grading worker as its parent sees it: it is started on demand, and killed when it misses the deadline."""

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
from core.grading.outcomes import Outcome

STARTUP_LIMIT = 60.0  # seconds for an interpreter and its imports on a busy machine
_ALARM_MARGIN = 5  # seconds after the deadline at which a worker without a parent ends itself
_CHUNK = 65_536  # bytes


class GradingError(CoevoError):
    """No worker can be started, so grading cannot go on."""


class WorkerProcess:
    """A worker process that is started by the first `ask`, and started again by the first `ask` after a kill."""

    def __init__(self, deadline: float, memory_mb: int, startup_limit: float = STARTUP_LIMIT) -> None:
        self._deadline, self._memory_mb, self._startup_limit = deadline, memory_mb, startup_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""  # output after the last complete line
        self._ending: list[subprocess.Popen[bytes]] = []  # killed, but perhaps still running

    @property
    def pid(self) -> int | None:
        """The id of the running process; None if there is none."""
        return self._process.pid if self._process else None

    def ask(self, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[Outcome, float]]:
        """For each pair of normalised texts, its outcome and the seconds since a ready process turned to it.

        All pairs are sent at once, so they must be few enough to fit into a pipe. If the process is late, crashes or
        runs out of memory, the pair is unknown, and a new process gets the remaining pairs. Raises `GradingError` if no
        process gets ready.
        """
        remaining = deque((json.dumps(pair, ensure_ascii=False) + "\n").encode(errors="replace") for pair in pairs)
        while remaining:
            process = self._send(b"".join(remaining))
            while remaining and self._process is process:
                start = time.monotonic()
                reply = self._read_line(process, self._deadline)
                if reply is None:
                    outcome = Outcome("unknown", "deadline")
                elif not reply:
                    try:
                        code = process.wait(timeout=1)
                        ending = signal.Signals(-code).name if code < 0 else f"exit status {code}"
                    except subprocess.TimeoutExpired:
                        ending = "closed its pipe"
                    outcome = Outcome("unknown", f"worker died: {ending}")
                else:
                    outcome = Outcome(*json.loads(reply))
                if not reply or outcome.reason == "memory":
                    self._kill_without_waiting()
                remaining.popleft()
                yield outcome, time.monotonic() - start

    def kill(self) -> None:
        """End the process and whatever it started, and wait until it is gone."""
        self._kill_without_waiting()
        while self._ending:
            self._ending.pop().wait()

    def _kill_without_waiting(self) -> None:
        """Kill the process without waiting for its end: the system takes a while to free two gigabytes."""
        if self._process is None:
            return
        process, self._process, self._received = self._process, None, b""
        if process.poll() is None:  # not reaped, so its id has not been reused
            os.killpg(process.pid, signal.SIGKILL)  # the process leads its own group
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        self._ending = [ending for ending in (*self._ending, process) if ending.poll() is None]

    def _send(self, request: bytes) -> subprocess.Popen[bytes]:
        """Send the request, and return the process that took it. A process that died while idle is replaced once."""
        for _ in range(2):
            process = self._process or self._start()
            assert process.stdin is not None
            try:
                process.stdin.write(request)  # fits into a pipe, so it cannot block
            except BrokenPipeError:
                self._kill_without_waiting()
            else:
                return process
        raise GradingError(
            "grading worker: expected a process to take pairs, but two ended first; find what kills them"
        )

    def _start(self) -> subprocess.Popen[bytes]:
        alarm = math.ceil(self._deadline) + _ALARM_MARGIN
        # Tokens, proxies and home folders are left out, because a worker has no use for them. The fixed hash seed makes
        # sympy's ordering, and so its verdicts, the same in every worker.
        variables = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
        library_paths = {name: os.environ[name] for name in variables if name in os.environ}
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        process = subprocess.Popen(
            [sys.executable, "-P", "-s", "-m", "core.grading.worker", str(self._memory_mb), str(alarm)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env={**library_paths, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"},
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
        raise GradingError(f"grading worker: {sys.executable} {failure}: {errors or 'it wrote no error'}")

    def _read_line(self, process: subprocess.Popen[bytes], limit: float) -> bytes | None:
        """The next line of the output; b"" if the process closed the pipe, None if `limit` seconds passed first."""
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
