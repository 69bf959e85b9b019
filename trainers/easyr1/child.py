"""Runs a command and ends it, with all processes that it started, when its own parent ends: `child.py LOG COMMAND…`.

EasyR1 starts its own Ray, whose processes would otherwise hold the GPUs for ever. The parent holds the other end of
this process's standard input, and the operating system closes that pipe whenever the parent ends, even by SIGKILL.
This process prints the exit status of the command to its standard output, and the command's output goes to LOG.
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
    # A Ray worker that exits kills its direct children. Were this process one of them, it could not end its own.
    if os.fork():
        os._exit(0)
    os.setsid()
    # Orphaned descendants become children of this process, so that it can find and end them.
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    with open(log, "ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    def end_with_parent() -> None:
        """Wait until standard input closes, and then end the command."""
        while sys.stdin.buffer.read(1):
            pass
        _end_descendants()

    threading.Thread(target=end_with_parent, daemon=True).start()
    exit_status = process.wait()
    _end_descendants()  # those that outlived the command
    print(exit_status, flush=True)


def _end_descendants() -> None:
    """End all descendants of this process: first with SIGTERM, then with SIGKILL."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        descendants = psutil.Process().children(recursive=True)
        for process in descendants:
            try:
                process.send_signal(signal_number)
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(descendants, timeout=_GRACE_S)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
