"""Trainings of the embedded trainer whose workers hang. The caller's clock goes on only while one is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from local_tiny import tiny_job, without_timings

from core.logs import Subject
from core.methods.evol_rl import EvolRl
from core.settings.serving import Service, Signals
from core.settings.trainers import LocalSettings
from tests.fake_clock import clock_that_runs_while, fake_clock
from tests.fake_service import fake_service, lengths
from tests.live import wait_until
from tests.processes import status_of
from trainers.base import TrainError, TrainJob, TrainResult
from trainers.local.heartbeat import Heartbeat, Watchdog, _kill_process
from trainers.local.order import Order
from trainers.local.trainer import LocalTrainer
from trainers.silence import Silence

STEP_S = LocalSettings().progress_timeout / 8


def job_in(work: Path, start: Path, service: Service) -> TrainJob:
    """A job of two workers, each of which asks the service for embeddings in each step."""
    job = tiny_job(work, start, learning_rate=1e-3, workers=2, reward=EvolRl(trained_share=1.0))
    return replace(job, signals=Signals(embedder=service))


class Stopping:
    """An embedder that stops a worker of the job, with SIGSTOP, at requests that `when` chooses."""

    def __init__(self, work_dir: Path, when: Callable[[int], bool]) -> None:
        self._work_dir, self._when = work_dir, when
        self.stopped: list[int] = []

    def __call__(self, before: int, body: dict[str, Any]) -> tuple[int, Any]:
        if self._when(len(self.stopped)):
            newest = max(self._work_dir.glob("heartbeat-0-*"), key=lambda file: file.stat().st_mtime_ns)
            pid = json.loads(newest.read_text())["pid"]
            if pid not in self.stopped:
                self.stopped.append(pid)
                psutil.Process(pid).suspend()
        return lengths(before, body)

    def hangs(self) -> bool:
        return any(status_of(pid) == psutil.STATUS_STOPPED for pid in self.stopped)


@pytest.fixture(scope="module")
def unbroken(own_ray: None, start: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    """What the job of two workers comes to on one machine if none is stopped."""
    with fake_service(lengths) as (service, _):
        return LocalTrainer().train(job_in(tmp_path_factory.mktemp("unbroken"), start, service), lambda *_: None)


@pytest.mark.parametrize("on_a_cluster", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_training_that_hangs_is_killed_and_goes_on_to_the_same_result(
    on_a_cluster: bool,
    unbroken: TrainResult,
    tmp_path: Path,
    start: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A worker is stopped in the third step. Both are killed, and begin again after the second."""
    monkeypatch.setattr(LocalTrainer, "_uses_this_machine_only", lambda _self: not on_a_cluster)
    work_dir, steps = tmp_path / "job", list[int]()
    stopping = Stopping(work_dir, lambda stopped: (work_dir / "step_2").exists() and not stopped)
    clock_that_runs_while(stopping.hangs, monkeypatch, STEP_S)
    with fake_service(stopping) as (service, _):
        broken = LocalTrainer().train(job_in(tmp_path, start, service), lambda step, _: steps.append(step))
    assert len(stopping.stopped) == 1
    wait_until(lambda: status_of(stopping.stopped[0]) is None, "the stopped worker to have ended")
    assert "7200 s" in caplog.text
    assert steps == [1, 2, 3, 4]
    assert without_timings(broken.metrics) == without_timings(unbroken.metrics)
    for file in ("final/model.safetensors", "step_4/optimizer.safetensors"):
        assert (work_dir / file).read_bytes() == (unbroken.folder.parent / file).read_bytes(), file


@pytest.mark.usefixtures("own_ray")
def test_a_training_that_hangs_again_ends_with_an_error(
    tmp_path: Path, start: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stopping = Stopping(tmp_path / "job", lambda _stopped: True)
    clock_that_runs_while(stopping.hangs, monkeypatch, STEP_S)
    with (
        fake_service(stopping) as (service, _),
        pytest.raises(TrainError, match="7200 s, 2 times"),
    ):
        LocalTrainer().train(job_in(tmp_path, start, service), lambda *_: None)
    assert len(stopping.stopped) == 2
    wait_until(lambda: [status_of(pid) for pid in stopping.stopped] == [None, None], "both to have ended")
    [last_lines] = [record.getMessage() for record in caplog.records if record.name == "trainers.last_lines"][:1]
    assert "worker 0 of 2 begins" in last_lines


@pytest.mark.usefixtures("own_ray")
def test_a_worker_touches_its_file_at_most_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, file, touched = fake_clock(monkeypatch), tmp_path / "heartbeat", 0
    heartbeat = Heartbeat(file)
    for _ in range(20):
        os.utime(file, ns=(0, 0))
        clock.seconds += 0.25
        heartbeat.beat("whatever a hook gets")
        touched += file.stat().st_mtime_ns > 0
    assert touched == 5
    assert json.loads(file.read_text())["pid"] == os.getpid()


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
