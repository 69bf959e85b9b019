from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from orchestrator.installation import processes
from orchestrator.ledger import is_alive, owner


def test_a_process_runs_until_it_ends_even_if_nobody_has_reaped_it() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    since = processes.started(process.pid)
    assert processes.is_running(process.pid, since)
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is a zombie
    assert not processes.is_running(process.pid, since)
    process.wait()
    assert not processes.is_running(process.pid, since)
    with pytest.raises(psutil.NoSuchProcess):
        processes.started(process.pid)


def test_another_process_of_the_same_number_is_another_process() -> None:
    me = os.getpid()
    assert not processes.is_running(me, processes.started(me) - 1)


def test_an_owner_is_alive_while_its_process_is_and_elsewhere_nobody_can_tell() -> None:
    host, pid, since = owner().rsplit(":", 2)
    assert is_alive(owner())
    assert not is_alive(f"{host}:{pid}:{float(since) - 1:.0f}")
    assert is_alive(f"another-{host}:{pid}:1")
