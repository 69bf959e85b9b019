"""The trainer on a real Ray: what the workers do is what one process does, and the driver hears of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import psutil
import pytest
import ray
import torch
from local_tiny import answering_model, save_tiny, tiny_job
from safetensors.torch import load_file

from core.config import ChallengerReward, Sampling
from core.grading import Grader
from core.methods import EvolRl
from core.serving_settings import Signals
from core.trainer_settings import LocalSettings
from tests.fake_service import fake_service, lengths
from trainers.base import TrainError, TrainJob
from trainers.local.checkpoints import Metrics, newest_step, read_state
from trainers.local.loop import train
from trainers.local.ranks import Ranks
from trainers.local.rewards import make_reward
from trainers.local.trainer import LocalTrainer

TIMINGS = {"sample_seconds", "reward_seconds", "update_seconds", "tokens_per_second"}


@pytest.fixture(scope="module")
def _ray() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.3")
        patch.setenv("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")  # one process less to start
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"), answering_model())


def job_in(work: Path, start: Path, **training: Any) -> TrainJob:
    job = tiny_job(work, learning_rate=1e-3, **training)
    return replace(job, start=replace(job.start, path=str(start)))


def by_hand(job: TrainJob) -> list[Metrics]:
    """The job in this process, as the only worker."""
    threads, metrics = torch.get_num_threads(), []
    torch.set_num_threads(1)
    with Grader() as grader:
        reward = make_reward(job, Ranks(), grader)
        train(job, reward, ranks=Ranks(), device="cpu", report=metrics.append, stopped=lambda: False)
    torch.set_num_threads(threads)
    return metrics


@pytest.mark.usefixtures("_ray")
def test_an_interrupted_worker_and_two_that_go_on_equal_one(tmp_path: Path, start: Path) -> None:
    alone = job_in(tmp_path / "alone", start)
    first, pair = (job_in(tmp_path / "pair", start, workers=count, checkpoint_every=1) for count in (1, 2))
    expected, heard = by_hand(alone), []

    def refuse(step: int, metrics: Metrics) -> None:
        raise InterruptedError(f"enough after {step}")

    with pytest.raises(InterruptedError, match="enough after 1"):
        LocalTrainer().train(first, refuse)
    folder = newest_step(pair)
    assert folder is not None
    done = read_state(folder).step
    assert (pair.work_dir / "final").exists() == (done == 4)  # the worker may have been faster than the interruption

    sparing = LocalTrainer(LocalSettings(sampling_rows=2, checkpoint_activations=True))
    result = sparing.train(pair, lambda step, metrics: heard.append((step, metrics)))
    assert [step for step, _ in heard] == list(range(done + 1, 5))
    assert result.metrics[done:] == tuple(metrics for _, metrics in heard)
    assert (result.step, result.folder) == (4, pair.work_dir / "final")

    assert any(one["reward_mean"] > 0 and one["zero_advantage_share"] < 1 for one in expected)
    for metrics, other in zip(result.metrics, expected, strict=True):
        assert metrics.keys() == other.keys()
        for name in metrics.keys() - TIMINGS:
            assert metrics[name] == pytest.approx(other[name], abs=1e-5), name
    weights, others = (load_file(job.work_dir / "final" / "model.safetensors") for job in (pair, alone))
    torch.testing.assert_close(weights, others, atol=1e-5, rtol=0)
    assert LocalTrainer().train(pair, refuse) == result  # it is done: no worker, no progress


@pytest.mark.usefixtures("_ray")
def test_a_worker_that_fails_is_a_train_error_with_its_cause(tmp_path: Path, start: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(start, broken)
    (broken / "model.safetensors").write_bytes(b"not a model")
    with pytest.raises(TrainError, match=r"^t/1/train_solver: training failed: [^\n]*header too large"):
        LocalTrainer(restarts=0).train(job_in(tmp_path, broken), lambda step, metrics: None)


@pytest.mark.usefixtures("_ray")
def test_the_settings_reach_the_workers(tmp_path: Path, start: Path) -> None:
    nonsense = LocalSettings.model_construct(type="local", sampling_rows=0, checkpoint_activations=False)
    with pytest.raises(TrainError, match=r"training failed: [^\n]*range\(\) arg 3 must not be zero"):
        LocalTrainer(nonsense, restarts=0).train(job_in(tmp_path, start), lambda step, metrics: None)


@pytest.mark.usefixtures("_ray")
def test_the_workers_have_the_callers_key(tmp_path: Path, start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray has been up since before the key was there."""
    monkeypatch.setenv("EMBEDDER_KEY", "secret")
    with fake_service(lengths) as (service, asked):
        keyed = service.model_copy(update={"key_variable": "EMBEDDER_KEY"})
        job = replace(
            job_in(tmp_path, start, steps=1), reward=EvolRl(trained_share=1.0), signals=Signals(embedder=keyed)
        )
        LocalTrainer().train(job, lambda *_: None)
    assert {key for _, _, key in asked} == {"Bearer secret"}


def workers_of(job: TrainJob) -> list[psutil.Process]:
    """The processes that have the job's metrics open."""
    found, file = [], str((job.work_dir / "metrics.jsonl").resolve())
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # one that ended meanwhile, or another user's
            if file in [opened.path for opened in process.open_files()]:
                found.append(process)
    return found


@pytest.mark.usefixtures("_ray")
def test_a_worker_killed_in_the_middle_of_a_step_changes_nothing(tmp_path: Path, start: Path) -> None:
    """Two that share the model out. The third step's first question for embeddings, from whichever worker it comes, is
    the last thing that one of them lives to see; both begin again from the second step's checkpoint."""
    jobs = [job_in(tmp_path / name, start, workers=2, sharded=True) for name in ("unbroken", "broken")]
    lock, killed, steps = Lock(), list[int](), list[int]()

    def kill_one(before: int, body: dict[str, Any]) -> tuple[int, Any]:
        with lock:
            if (jobs[1].work_dir / "step_2").exists() and not killed:
                victim = workers_of(jobs[1])[-1]
                killed.append(victim.pid)
                victim.kill()
        return lengths(before, body)

    results = []
    for job, answer in zip(jobs, (lengths, kill_one), strict=True):
        with fake_service(answer) as (service, _):
            asking = replace(job, reward=EvolRl(trained_share=1.0), signals=Signals(embedder=service))
            results.append(LocalTrainer().train(asking, lambda step, _: steps.append(step)))
    assert len(killed) == 1
    assert steps == [1, 2, 3, 4] * 2
    for metrics, others in zip(*(result.metrics for result in results), strict=True):
        assert {n: metrics[n] for n in metrics.keys() - TIMINGS} == {n: others[n] for n in others.keys() - TIMINGS}
    for file in ("final/model.safetensors", "step_4/optimizer.safetensors"):
        unbroken, broken = ((job.work_dir / file).read_bytes() for job in jobs)
        assert broken == unbroken, file


@pytest.mark.usefixtures("_ray")
def test_what_cannot_start_is_refused_at_once(tmp_path: Path, start: Path) -> None:
    job = job_in(tmp_path, start)
    refused = {
        r"workers: 64 need 64 CPU, Ray has 2": job_in(tmp_path, start, workers=64),
        r"start: expected a folder with a model, got .*/nowhere": job_in(tmp_path, tmp_path / "nowhere"),
        r"questions: expected at least one, got none": replace(job, questions=()),
        r"solver: expected the service .*, got None": replace(job, role="challenger", reward=ChallengerReward()),
        r"sampling.temperature: expected more than 0": job_in(tmp_path, start, sampling=Sampling(temperature=0)),
    }
    for message, bad in refused.items():
        with pytest.raises(TrainError, match=f"t/1/train_solver: {message}"):
            LocalTrainer().train(bad, lambda step, metrics: None)
