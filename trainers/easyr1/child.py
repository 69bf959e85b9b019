"""Runs a command, and ends it and all that it started when whoever started us is gone: `child.py LOG COMMAND…`.

EasyR1 starts a Ray of its own, whose processes would hold the GPUs for ever. Who started us holds the other end of our
standard input, which closes however that process ends, by SIGKILL too. The command's exit status is what we print.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading

import psutil

_GRACE_S = 10.0
_PR_SET_CHILD_SUBREAPER = 36


def main(log: str, command: list[str]) -> None:
    if os.fork():  # a Ray worker that exits kills its children, and so would leave ours to themselves
        os._exit(0)
    os.setsid()
    # What is orphaned below us becomes our child, and none of it is lost sight of.
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    with open(log, "ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_with_starter, daemon=True).start()
    code = process.wait()
    _end_all()  # what outlived it
    print(code, flush=True)


def _end_with_starter() -> None:
    while sys.stdin.buffer.read(1):
        pass
    _end_all()


def _end_all() -> None:
    """End all that is below this process, politely at first."""
    for send in (signal.SIGTERM, signal.SIGKILL):
        below = psutil.Process().children(recursive=True)
        for process in below:
            try:
                process.send_signal(send)
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(below, timeout=_GRACE_S)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
