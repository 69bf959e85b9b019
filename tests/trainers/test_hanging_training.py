"""When a training hangs, and what is killed then; test_local_trainer.py has trainings that hang."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from local_tiny import tiny_job

from core.logs import Subject
from core.settings.trainers import LocalSettings
from tests.fake_clock import fake_clock
from trainers.local.heartbeat import Watchdog, _kill_process
from trainers.local.order import Order
from trainers.silence import Silence

STEP_S = LocalSettings().progress_timeout / 8


def test_silence_is_the_time_without_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = fake_clock(monkeypatch)
    silence = Silence(100.0)

    def looks(seen: int, times: int) -> list[bool]:
        answers = []
        for _ in range(times):
            clock.seconds += 30.0
            answers.append(silence.is_too_long(seen))
        return answers

    assert looks(1, 3) == looks(2, 3) == looks(3, 3) == [False] * 3
    assert looks(4, 6) == [False] * 4 + [True, False]  # from the first look at the change on
    assert looks(4, 4) == [False, False, True, False]


def test_a_caller_that_was_suspended_itself_kills_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = fake_clock(monkeypatch)
    silence = Silence(100.0)
    assert not silence.is_too_long(1)
    clock.seconds += 1_000.0
    assert not silence.is_too_long(1)
    clock.seconds += 99.0
    assert not silence.is_too_long(1)


def test_a_training_in_the_caller_s_process_is_not_killed_but_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = fake_clock(monkeypatch)
    order = Order(tiny_job(tmp_path), LocalSettings(own_processes=False), {}, Subject("t", 1, "train_solver"))
    watchdog = Watchdog(order)
    for _ in range(20):
        clock.seconds += STEP_S
        watchdog.look()
    assert "trainer.own_processes" in caplog.text
    assert watchdog.cause == ""


@pytest.mark.parametrize(("later_s", "signal_number"), [(0.0, signal.SIGKILL), (60.0, signal.SIGTERM)])
def test_only_the_process_that_started_at_this_time_is_killed(later_s: float, signal_number: int) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        started = psutil.Process(process.pid).create_time()
        _kill_process(process.pid, started - later_s)
        process.terminate()
        assert process.wait(60) == -signal_number
    _kill_process(process.pid, started)  # it is gone
