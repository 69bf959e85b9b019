"""Runs that share one cluster: two CPUs for trainings that take both, and stand-in GPUs for a fake EasyR1."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from orchestrator.home import APPLICATIONS
from orchestrator.serving import reserved
from storage import queries
from storage.rows import PoolRow
from tests.live import Live, live_services, wait_until

BOTH = ("challenger.training.workers=2", "solver.training.workers=2")
FAKE_EASYR1 = Path(__file__).parents[1] / "trainers" / "fake_easyr1"


def jobs(live: Live) -> list[PoolRow]:
    with live.store().read() as session:
        return queries.pool_jobs(session)


def at_work(live: Live) -> dict[str, str]:
    """Run -> the stage that it trains in."""
    return {row.run: row.stage for row in jobs(live) if row.status == "running"}


def test_an_urgent_run_takes_the_place_of_another_which_loses_nothing(live: Live) -> None:
    steps = 150
    patient = live.start(*live.small_run("patient", f"solver.training.steps={steps}", *BOTH))
    wait_until(lambda: at_work(live) == {"patient": "train_solver"}, "the patient run to train its Solver")
    urgent = live.start(*live.small_run("urgent", "pool.priority=1", *BOTH))
    seen = list[dict[str, str]]()

    def over() -> bool:
        seen.append(at_work(live))
        return patient.poll() is not None and urgent.poll() is not None

    wait_until(over, "both runs to end", 600)
    assert (patient.returncode, urgent.returncode) == (0, 0)
    assert all(len(working) <= 1 for working in seen)  # each takes both CPUs
    order = [next(iter(working)) for working in seen if working]
    turns = [run for i, run in enumerate(order) if i == 0 or order[i - 1] != run]
    assert turns[:3] == ["patient", "urgent", "patient"]
    with live.store().read() as session:
        rewards = queries.train_metrics_of(session, "patient", role="solver", name="reward_mean")
        stages = queries.stages_of(session, "patient")
    assert [metric.step for metric in rewards] == [*range(1, steps + 1)]
    assert {stage.attempt for stage in stages} == {1}  # to give a place up is no failure
    assert {row.status for row in jobs(live)} == {"done"}


def test_a_killed_driver_leaves_its_place_to_who_waits(live: Live) -> None:
    killed = live.start(*live.small_run("killed-in-pool", "solver.training.steps=40", *BOTH))
    wait_until(lambda: at_work(live) == {"killed-in-pool": "train_solver"}, "the first run to train its Solver")
    waiting = live.start(*live.small_run("waiting", *BOTH))
    wait_until(lambda: any(row.run == "waiting" and row.status == "queued" for row in jobs(live)), "the other to queue")
    shown = live.coevo("status").stdout
    assert "worker pool" in shown
    assert "queued" in shown
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert waiting.wait(timeout=600) == 0


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Services on a Ray that believes to have three GPUs."""
    before = os.environ.get("RAY_OVERRIDE_RESOURCES")
    os.environ["RAY_OVERRIDE_RESOURCES"] = '{"GPU": 3}'
    try:
        with live_services(tmp_path_factory.mktemp("gpus")) as services:
            yield services
    finally:
        os.environ.pop("RAY_OVERRIDE_RESOURCES")
        if before is not None:
            os.environ["RAY_OVERRIDE_RESOURCES"] = before


def test_two_runs_on_easyr1_share_gpus_that_the_applications_give_back(gpus: Live, tmp_path: Path) -> None:
    """Each run's trainings take two of three GPUs, an application takes one: while a Challenger trains, all are taken,
    and neither run waits for what the other has."""
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
        "trainer.update_micro_batch=1",
        "trainer.experience_micro_batch=1",
    )
    running = [gpus.start(*gpus.small_run(name, *settings)) for name in ("a", "b")]
    held = dict[str, set[float]]()

    def over() -> bool:
        for stage in at_work(gpus).values():
            held.setdefault(stage, set()).add(reserved(gpus.services, "GPU"))
        return all(process.poll() is not None for process in running)

    wait_until(over, "both runs to end", 600)
    log = (gpus.home.logs / "started.log").read_text()
    assert [process.returncode for process in running] == [0, 0], log[-3000:]
    assert 0 in held["train_solver"]
    assert max(held["train_challenger"]) == 1
    for run in ("a", "b"):
        with gpus.store().read() as session:
            assert {row.status for row in queries.stages_of(session, run)} == {"done"}
    assert [row.used > 0 for row in jobs(gpus)] == [True] * 4


def test_what_the_cluster_never_has_is_refused_at_once(live: Live) -> None:
    done = live.coevo(*live.small_run("greedy", "challenger.training.workers=7"))
    assert done.returncode == 1
    assert "run greedy: the training asks for 7 CPU, the cluster has 2" in done.stderr
