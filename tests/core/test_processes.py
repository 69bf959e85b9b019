from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from core.processes import identity as processes


def test_an_ended_process_is_not_running_even_if_it_is_a_zombie() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    since = processes.started(process.pid)
    assert processes.is_running(process.pid, since)
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended and is a zombie
    assert not processes.is_running(process.pid, since)
    process.wait()
    assert not processes.is_running(process.pid, since)
    with pytest.raises(psutil.NoSuchProcess):
        processes.started(process.pid)


def test_a_process_with_the_same_pid_and_another_start_is_not_the_same() -> None:
    me = os.getpid()
    assert not processes.is_running(me, processes.started(me) - 1)
