"""The embedded trainer on a real Ray: its workers get the same result as a single process and report to the driver."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock
from typing import Any
from unittest.mock import patch

import psutil
import pytest
import ray
import torch
from local_tiny import TIMINGS, tiny_job, without_timings
from safetensors.torch import load_file

from core.asking.service import Service
from core.logs import Subject, working_on
from core.methods.evol_rl import EvolRl
from core.settings.serving import Signals
from core.settings.trainers import LocalSettings
from core.settings.training import Sampling
from tests.fake_clock import clock_that_runs_while, fake_clock
from tests.fake_service import fake_service, lengths
from tests.live import wait_until
from tests.processes import descendants, status_of
from trainers.base import SolverJob, TrainError, TrainJob, TrainResult
from trainers.local import processes
from trainers.local.heartbeat import Heartbeat
from trainers.local.order import Order
from trainers.local.ranks import Ranks
from trainers.local.state import Metrics, final_folder, newest_step, read_state, step_folders
from trainers.local.trainer import LocalTrainer
from trainers.local.worker import run_worker

pytestmark = pytest.mark.usefixtures("own_ray")
STEP_S = LocalSettings().progress_timeout / 8


def job_in(work: Path, start: Path, **training: Any) -> SolverJob:
    return tiny_job(work, start, learning_rate=1e-3, **training)


def asking(job: TrainJob, service: Service) -> TrainJob:
    """The job with a reward that asks this service for embeddings in each step."""
    return replace(job, reward=EvolRl(trained_share=1.0), signals=Signals(embedder=service))


def train_here(job: TrainJob) -> list[Metrics]:
    """Train in this process, as the only worker; check that the order's keys are removed from the environment."""
    order = Order(job, LocalSettings(), {"A_KEY": "key-of-a-test"}, Subject("demo", 1, "train_solver"))
    job.work_dir.mkdir(parents=True)
    run_worker(order, Ranks(), torch.device("cpu"))
    assert "A_KEY" not in os.environ
    assert "key-of-a-test" not in order.log(0).read_text()
    return [json.loads(line) for line in order.metrics.read_text().splitlines()]


def test_processes_can_be_started_before_there_is_a_job() -> None:
    """The tests below train in them: a new process takes seconds."""
    LocalTrainer().warm_up(2)
    LocalTrainer().warm_up(1)
    wait_until(lambda: len(idle_processes()) == 2, "two processes, and no more, to wait for a job")


def idle_processes() -> list[str]:
    """The titles of the idle training workers of the Ray that this process started."""
    return [title for _, title in descendants(os.getpid()) if title == "ray::TrainingWorker"]


def test_a_job_interrupted_and_resumed_by_two_workers_equals_an_uninterrupted_one(tmp_path: Path, start: Path) -> None:
    """In its second step the worker waits for embeddings until it has been told to stop."""
    work_dir, reported = tmp_path / "pair" / "job", list[tuple[int, Metrics]]()
    in_second_step, interrupted = Event(), Event()

    def embeddings(before: int, body: dict[str, Any]) -> tuple[int, Any]:
        if (work_dir / "step_1").exists() and not interrupted.is_set():
            in_second_step.set()
            wait_until(lambda: any(work_dir.glob("stop-*")), "the worker to be told to stop")
        return lengths(before, body)

    def refuse(step: int, metrics: Metrics) -> None:
        assert in_second_step.wait(60)
        raise InterruptedError(f"enough after {step}")

    with fake_service(embeddings) as (service, _):

        def job_of(name: str, **training: Any) -> TrainJob:
            return asking(job_in(tmp_path / name, start, **training), service)

        expected, pair = train_here(job_of("alone")), job_of("pair", workers=2, checkpoint_every=1)
        with pytest.raises(InterruptedError, match="enough after 1"):
            LocalTrainer().train(job_of("pair", checkpoint_every=1), refuse)
        interrupted.set()
        folder = newest_step(pair)
        assert folder is not None
        assert read_state(folder).step == 2
        sparing = LocalTrainer(LocalSettings(sampling_rows=2, checkpoint_activations=True))
        result = sparing.train(pair, lambda step, metrics: reported.append((step, metrics)))
    assert reported == [*enumerate(result.metrics, 1)][2:]
    assert (result.step, result.folder) == (4, pair.work_dir / "final")

    assert any(step_metrics["zero_advantage_share"] < 1 for step_metrics in expected)
    for metrics, other in zip(result.metrics, expected, strict=True):
        assert metrics.keys() == other.keys()
        for name in metrics.keys() - TIMINGS:
            assert metrics[name] == pytest.approx(other[name], abs=1e-5), name
    alone = tmp_path / "alone" / "job"
    weights, others = (load_file(folder / "final" / "model.safetensors") for folder in (pair.work_dir, alone))
    torch.testing.assert_close(weights, others, atol=1e-5, rtol=0)
    assert LocalTrainer().train(pair, refuse) == result  # the job is done, so nothing is trained or reported


def test_the_workers_have_the_caller_s_key(tmp_path: Path, start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have it though Ray was started before the key was set."""
    monkeypatch.setenv("EMBEDDER_KEY", "secret")
    with fake_service(lengths) as (service, requests):
        keyed = service.model_copy(update={"key_variable": "EMBEDDER_KEY"})
        LocalTrainer().train(asking(job_in(tmp_path, start, steps=1), keyed), lambda *_: None)
    assert {key for _, _, key in requests} == {"Bearer secret"}


class Striking:
    """An embedder that sends a signal to the worker of this rank at requests that `when` chooses."""

    def __init__(self, work_dir: Path, rank: int, signal_number: int, when: Callable[[int], bool]) -> None:
        self._work_dir, self._rank, self._signal, self._when = work_dir, rank, signal_number, when
        self._lock, self.struck = Lock(), list[int]()

    def __call__(self, before: int, body: dict[str, Any]) -> tuple[int, Any]:
        with self._lock:
            if self._when(len(self.struck)):
                files = self._work_dir.glob(f"heartbeat-{self._rank}-*")
                pid = json.loads(max(files, key=lambda file: file.stat().st_mtime_ns).read_text())["pid"]
                if pid not in self.struck:
                    self.struck.append(pid)
                    os.kill(pid, self._signal)
        return lengths(before, body)

    def hangs(self) -> bool:
        return any(status_of(pid) == psutil.STATUS_STOPPED for pid in self.struck)


@pytest.fixture(scope="module")
def unbroken(own_ray: None, start: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    """What a job of two workers that shard the model comes to on one machine if neither is killed or stopped."""
    work = tmp_path_factory.mktemp("unbroken")
    with fake_service(lengths) as (service, _):
        job = asking(job_in(work, start, workers=2, sharded=True), service)
        return LocalTrainer().train(job, lambda *_: None)


@pytest.mark.parametrize(
    ("signal_number", "rank", "on_a_cluster"),
    [
        (signal.SIGKILL, 1, False),
        (signal.SIGKILL, 1, True),
        (signal.SIGSTOP, 0, False),
        pytest.param(signal.SIGSTOP, 0, True, marks=pytest.mark.slow),
    ],
    ids=["dies", "dies on a cluster", "hangs", "hangs on a cluster"],
)
def test_a_worker_that_dies_or_hangs_in_the_middle_of_a_step_changes_nothing(
    signal_number: int,
    rank: int,
    on_a_cluster: bool,
    unbroken: TrainResult,
    tmp_path: Path,
    start: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """When the first request for embeddings of the third step arrives, from either worker, one of them is killed or
    stopped; both begin again from the second step's checkpoint. The caller's clock goes on only while one is stopped.
    """
    monkeypatch.setattr(LocalTrainer, "_uses_this_machine_only", lambda _self: not on_a_cluster)
    work_dir, steps = tmp_path / "job", list[int]()
    striking = Striking(work_dir, rank, signal_number, lambda struck: (work_dir / "step_2").exists() and not struck)
    clock_that_runs_while(striking.hangs, monkeypatch, STEP_S)
    with fake_service(striking) as (service, _):
        job = asking(job_in(tmp_path, start, workers=2, sharded=True), service)
        broken = LocalTrainer().train(job, lambda step, _: steps.append(step))
    [pid] = striking.struck
    wait_until(lambda: status_of(pid) is None, "the worker to have ended")
    assert ("7200 s" in caplog.text) == (signal_number == signal.SIGSTOP)
    assert steps == [1, 2, 3, 4]
    assert (work_dir / "ray").exists() == on_a_cluster
    assert without_timings(broken.metrics) == without_timings(unbroken.metrics)
    for file in ("final/model.safetensors", "step_4/optimizer.safetensors"):
        assert (work_dir / file).read_bytes() == (unbroken.folder.parent / file).read_bytes(), file


def test_workers_wait_for_the_next_job_only_where_no_other_machine_could_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [own] = ray.nodes()
    idle, busy, dead = ({**own, "NodeID": name, "Resources": {"CPU": 2.0}} for name in ("idle", "busy", "dead"))
    idle["Resources"], dead["Alive"] = {"memory": 1.0}, False
    for nodes, alone in (([own], True), ([own, idle, dead], True), ([own, busy], False), ([busy], False)):
        monkeypatch.setattr(ray, "nodes", lambda nodes=nodes: nodes)
        with patch.object(processes, "warm_up") as warm_up:
            LocalTrainer().warm_up(2)
        assert warm_up.called == alone, nodes


def test_two_workers_can_use_cpus_on_a_machine_with_one_gpu(
    tmp_path: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo's workers do this. Ray has no GPU here, but the test makes it report one."""
    resources = {**ray.cluster_resources(), "GPU": 1.0}
    monkeypatch.setattr(ray, "cluster_resources", lambda: resources)
    job = job_in(tmp_path, start, steps=1, workers=2)
    with pytest.raises(TrainError, match=r"training\.workers: .*GPU"):
        LocalTrainer().train(job, lambda *_: None)
    assert LocalTrainer(LocalSettings(device="cpu")).train(job, lambda *_: None).step == 1


def test_the_settings_reach_the_workers(tmp_path: Path, start: Path) -> None:
    """A worker in this process raises what it would raise in its own."""
    nonsense = LocalSettings.model_construct(type="local", sampling_rows=0, checkpoint_activations=False)
    with (
        patch.object(processes, "train_here", lambda order, _restarts: run_worker(order, Ranks(), torch.device("cpu"))),
        pytest.raises(ValueError, match=r"range\(\) arg 3 must not be zero"),
    ):
        LocalTrainer(nonsense).train(job_in(tmp_path, start), lambda step, metrics: None)


def test_a_caller_that_has_lost_its_job_removes_no_step_folder(tmp_path: Path, start: Path) -> None:
    """The one that has taken over may be reading it. The workers go on until they notice; here, to their end."""
    job = job_in(tmp_path, start, checkpoint_every=1)

    def lost(_step: int, _metrics: Metrics) -> None:
        wait_until(final_folder(job.work_dir).exists, "the end of the training")
        raise RuntimeError("another caller has taken over")

    trainer = LocalTrainer(LocalSettings(own_processes=False))
    with pytest.raises(RuntimeError, match="taken over"):
        trainer.train(job, lost)
    assert [folder.name for folder in step_folders(job.work_dir)] == ["step_1", "step_2", "step_3", "step_4"]
    trainer.train(replace(job, work_dir=tmp_path / "kept"), lambda *_: None)
    assert [folder.name for folder in step_folders(tmp_path / "kept")] == ["step_3", "step_4"]


def test_a_job_that_cannot_start_is_refused_at_once(tmp_path: Path, start: Path) -> None:
    job = job_in(tmp_path, start)
    refused = {
        "training.workers": job_in(tmp_path, start, workers=64),
        "start": job_in(tmp_path, tmp_path / "nowhere"),
        "questions": replace(job, questions=()),
        "sampling.temperature": job_in(tmp_path, start, sampling=Sampling(temperature=0)),
    }
    for setting, bad in refused.items():
        with pytest.raises(TrainError, match=f"^t/1/train_solver: {setting}: "):
            LocalTrainer().train(bad, lambda step, metrics: None)


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


def workers_of(job: TrainJob) -> list[psutil.Process]:
    """The processes that have the job's metrics open."""
    workers, file = [], str((job.work_dir / "metrics.jsonl").resolve())
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # the process has ended meanwhile, or is another user's
            if file in [opened.path for opened in process.open_files()]:
                workers.append(process)
    return workers


def test_the_next_job_has_the_same_process_unless_that_has_died(tmp_path: Path, start: Path) -> None:

    def pid_at_work(name: str) -> int:
        job, pids = job_in(tmp_path / name, start, steps=1), set[int]()

        def answer(before: int, body: dict[str, Any]) -> tuple[int, Any]:
            pids.update(worker.pid for worker in workers_of(job))
            return lengths(before, body)

        with fake_service(answer) as (service, _):
            LocalTrainer(restarts=0).train(asking(job, service), lambda *_: None)
        [pid] = pids
        return pid

    first = pid_at_work("first")
    assert pid_at_work("second") == first
    psutil.Process(first).kill()
    assert pid_at_work("third") != first


def test_a_training_that_hangs_again_ends_with_an_error(
    tmp_path: Path, start: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    striking = Striking(tmp_path / "job", 0, signal.SIGSTOP, lambda _struck: True)
    clock_that_runs_while(striking.hangs, monkeypatch, STEP_S)
    with (
        fake_service(striking) as (service, _),
        pytest.raises(TrainError, match="7200 s, 2 times"),
    ):
        LocalTrainer().train(asking(job_in(tmp_path, start), service), lambda *_: None)
    assert len(striking.struck) == 2
    wait_until(lambda: [status_of(pid) for pid in striking.struck] == [None, None], "both to have ended")
    [last_lines] = [record.getMessage() for record in caplog.records if record.name == "trainers.last_lines"][:1]
    assert "worker 0 of 1 begins" in last_lines


def test_a_worker_s_failure_raises_a_train_error_and_logs_its_last_lines(
    tmp_path: Path, start: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(start, broken)
    (broken / "model.safetensors").write_bytes(b"not a model")
    job = job_in(tmp_path, broken)
    with (
        pytest.raises(TrainError, match=r"^t/1/train_solver: .*header too large"),
        working_on(Subject("demo", 1, "train_solver")),
    ):
        LocalTrainer(restarts=0).train(job, lambda step, metrics: None)
    [logged] = [record for record in caplog.records if record.name == "trainers.last_lines"]
    first, begins, *_, last = logged.getMessage().splitlines()
    assert (first, begins) == ("the last lines of worker-0.log:", "INFO    worker 0 of 1 begins")
    assert "header too large" in last
    events = [json.loads(line) for line in (job.work_dir / "worker-0.log").read_text().splitlines()]
    for event in events:
        assert (event["process"], event["run"], event["stage"]) == ("trainer", "demo", "train_solver")
