"""How `coevo check` makes its checks: each ends at its deadline, and all of them at a Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.check.machine.examine import examine
from orchestrator.check.machine.result import Finding, Subject
from orchestrator.installation.home import Home


def test_a_check_that_hangs_ends_at_its_deadline(tmp_path: Path) -> None:
    def hangs(_: Subject) -> Finding:
        threading.Event().wait()
        return Finding("ok", "")

    [result] = examine(Subject(Home(tmp_path)), [("hangs", hangs, 0.01)])
    assert (result.status, result.detail) == ("fault", "no answer within 0.01 s")


def test_ctrl_c_ends_the_checks_although_its_signal_interrupts_no_wait(tmp_path: Path) -> None:
    ended = threading.Event()

    def interrupted(_: Subject) -> Finding:
        signal.raise_signal(signal.SIGINT)  # in this thread, so the main thread's wait goes on
        ended.wait(20)
        ended.set()
        return Finding("ok", "")

    # The tests may run in the background of a shell, whose processes ignore Ctrl-C.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            [*examine(Subject(Home(tmp_path)), [("interrupted", interrupted, 30)])]
    finally:
        signal.signal(signal.SIGINT, handler)
    assert not ended.is_set()


def test_a_check_s_process_does_not_outlive_the_command_after_ctrl_c(tmp_path: Path) -> None:
    fifo = tmp_path / "started"  # the question keeps it open until it ends
    os.mkfifo(fifo)
    question = f"exec 9> {fifo}; echo started >&9; exec sleep 1000"
    code = (
        # The tests may run in the background of a shell, whose processes ignore Ctrl-C.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from orchestrator.check.machine import devices, examine\n"
        f"def ask(_): devices.run(['sh', '-c', {question!r}], dict())\n"
        "[*examine.examine(None, [('asks', ask, 1000)])]"
    )
    with (
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as command,
        fifo.open() as started,
    ):
        assert started.readline() == "started\n"
        command.send_signal(signal.SIGINT)
        assert command.wait(60) != 0
        assert started.read() == ""  # comes to its end only when the question has ended
