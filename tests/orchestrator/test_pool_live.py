"""Runs that share one cluster: two CPUs for trainings that take both, and made-up GPUs for a fake EasyR1."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.settings.serving import Serving
from orchestrator.installation.home import APPLICATIONS
from orchestrator.serving.checkpoints import reserved, serve_checkpoints
from storage import queries
from storage.rows import PoolRow
from tests.live import Live, live_services, terminated, wait_until
from tests.served import base_checkpoint

BOTH = ("challenger.training.workers=2", "solver.training.workers=2")
FAKE_EASYR1 = Path(__file__).parents[1] / "trainers" / "fake_easyr1"


def _run(live: Live, name: str, *more: str) -> list[str]:
    """Arguments of the small run, with few questions, because these tests are about its trainings."""
    return live.small_run(name, *more, live.few_questions)


def jobs(live: Live) -> list[PoolRow]:
    with live.store().read() as session:
        return queries.pool.pool_jobs(session)


def training_stages(live: Live) -> dict[str, str]:
    """Run -> the stage that it trains in."""
    return {row.run: row.stage for row in jobs(live) if row.status == "running"}


def queued(live: Live) -> list[str]:
    return [row.run for row in jobs(live) if row.status == "queued"]


@contextmanager
def pool_driver(live: Live) -> Iterator[subprocess.Popen[str]]:
    """Another driver, which asks the pool for a slot when the test tells it to."""
    command = [sys.executable, str(Path(__file__).with_name("pool_driver.py"))]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=live.environment, **pipes) as process, terminated(process):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def send_line(process: subprocess.Popen[str], line: str) -> str:
    """Write a line to the driver; returns its reply."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_a_training_waits_for_other_runs_trainings_until_they_end_or_their_driver_is_killed(live: Live) -> None:
    """The roles of the run that waits share a model (R-Zero G)."""
    with pool_driver(live) as other:
        assert send_line(other, "other 2 train_solver") == "began"
        waiting = live.start(*_run(live, "waiting", *BOTH, "shared=true"))
        wait_until(lambda: queued(live) == ["waiting"], "the run to queue for its Challenger's training")
        assert training_stages(live) == {"other": "train_solver"}
        status = live.coevo("status").stdout
        assert "worker pool" in status
        assert "queued" in status
        assert send_line(other, "go on") == "over"
        wait_until(lambda: training_stages(live) == {"waiting": "train_challenger"}, "the run to train its Challenger")
        # The slot asked for now is given after the Challenger's training; the run's next training waits for it in turn.
        assert send_line(other, "killed-driver 2 train_solver") == "began"
        wait_until(lambda: queued(live) == ["waiting"], "the run to queue for its Solver's training")
        assert training_stages(live) == {"killed-driver": "train_solver"}
        other.kill()
        assert waiting.wait(timeout=300) == 0
    with live.store().read() as session:
        stages = queries.ledger.stages_of(session, "waiting")
        lineage = [checkpoint.id for checkpoint in queries.checkpoints.lineage(session, "waiting/solver/1")]
        voters = {vote.checkpoint for vote in queries.questions.rollouts_of(session, "waiting", 1)}
    assert {stage.attempt for stage in stages} == {1}  # waiting does not count as a failed attempt
    assert lineage == ["waiting/solver/1", "waiting/challenger/1", "waiting/base/0"]
    assert voters == {"waiting/challenger/1"}
    assert {row.status for row in jobs(live)} == {"done"}


def test_a_training_that_could_never_have_its_slot_is_refused_at_once(live: Live, tmp_path: Path) -> None:
    tree = yaml.safe_load((APPLICATIONS / "embedded.yaml").read_text())
    tree["applications"][1]["deployments"][0].update(num_replicas=1, placement_group_bundles=[{"CPU": 1}])
    (tmp_path / "cpus.yaml").write_text(yaml.safe_dump(tree))
    serving = Serving(applications=str(tmp_path / "cpus.yaml"))
    serve_checkpoints(live.services, {"solver": base_checkpoint(live)}, serving)
    refusals = {
        "greedy 7 train_solver": "run greedy: the training requests 7 CPU, but the cluster has 2",
        "limited 2 train_solver 1": "run limited: the training requests 2 CPU, but COEVO_POOL_LIMIT allows 1",
        "misled 2 train_solver one": "COEVO_POOL_LIMIT: expected a number, got 'one'",
        "beside 2 train_challenger": "run beside: the training requests 2 CPU, but the inference applications leave 1",
    }
    with pool_driver(live) as driver:
        assert {request: send_line(driver, request) for request in refusals} == refusals
    assert {"greedy", "beside", "limited", "misled"}.isdisjoint(row.run for row in jobs(live))
    serve_checkpoints(live.services, {}, Serving(release=True))


@pytest.fixture(scope="module")
def live_gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Services on a Ray that reports three GPUs."""
    fitting = {"RAY_OVERRIDE_RESOURCES": '{"GPU": 3}', "FAKE_EASYR1_ADDS": "0"}
    with pytest.MonkeyPatch.context() as environment:
        for name, value in fitting.items():
            environment.setenv(name, value)
        with live_services(tmp_path_factory.mktemp("gpus")) as services:
            yield services


@pytest.mark.slow
def test_two_runs_on_easyr1_share_gpus_that_the_applications_give_back(live_gpus: Live, tmp_path: Path) -> None:
    """Each run's trainings take two of three GPUs, an application takes one. While a Challenger trains, all are taken,
    and neither run waits for a GPU of the other's applications."""
    tree = yaml.safe_load((APPLICATIONS / "embedded.yaml").read_text())
    for application in tree["applications"]:
        application["deployments"][0].update(num_replicas=1, ray_actor_options={"num_cpus": 0, "num_gpus": 1})
    (tmp_path / "gpus.yaml").write_text(yaml.safe_dump(tree))
    settings = (
        f"serving.applications={tmp_path / 'gpus.yaml'}",
        "serving.release=true",
        "trainer.type=easyr1",
        f"trainer.python={sys.executable}",
        f"trainer.source={FAKE_EASYR1}",
        "trainer.gpus_per_node=2",
        "challenger.training.prompts_per_step=2",  # EasyR1 divides them among the GPUs
        "trainer.update_micro_batch=1",
    )
    running = [live_gpus.start(*_run(live_gpus, name, *settings)) for name in ("a", "b")]
    gpus_of_applications = dict[str, set[float]]()

    def over() -> bool:
        for stage in training_stages(live_gpus).values():
            gpus_of_applications.setdefault(stage, set()).add(reserved(live_gpus.services)["GPU"])
        return all(process.poll() is not None for process in running)

    wait_until(over, "both runs to end", 600)
    log = (live_gpus.home.logs / "started.log").read_text()
    assert [process.returncode for process in running] == [0, 0], log[-3000:]
    assert 0 in gpus_of_applications["train_solver"]
    assert max(gpus_of_applications["train_challenger"]) == 1
    for run in ("a", "b"):
        with live_gpus.store().read() as session:
            assert {row.status for row in queries.ledger.stages_of(session, run)} == {"done"}
    assert [row.used > 0 for row in jobs(live_gpus)] == [True] * 4
