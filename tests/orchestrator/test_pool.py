"""The slot that a training asks the pool for, and which of the trainings that share a cluster may begin: examples by
hand, and properties of any queue."""

from __future__ import annotations

from dataclasses import replace

import pytest
import ray
from hypothesis import given, settings
from hypothesis import strategies as st

from core.settings.trainers import EasyR1Settings, LocalSettings, TrainerSettings
from orchestrator.pool.scheduler import PoolJob, to_start
from orchestrator.pool.slot import Demand, demand_of

WAITING = PoolJob("a", "GPU", 4, 0.0, 1.0, running=False)
RUNNING = replace(WAITING, key="r", since=0.0, running=True)


def test_jobs_of_the_run_that_used_least_go_first_then_those_that_waited_longest() -> None:
    jobs = [
        replace(WAITING, key="late", since=9.0),
        replace(WAITING, key="early", since=2.0),
        replace(WAITING, key="used much", used=50.0, since=0.0),
    ]
    assert to_start(jobs, {"GPU": 12}) == ["early", "late", "used much"]
    assert to_start(jobs, {"GPU": 8}) == ["early", "late"]


def test_small_jobs_do_not_overtake_a_large_one() -> None:
    jobs = [RUNNING, replace(WAITING, key="large", units=8), replace(WAITING, key="small", units=1, since=2.0)]
    assert to_start(jobs, {"GPU": 8}) == []


def test_jobs_for_cpus_and_for_gpus_do_not_wait_for_each_other() -> None:
    jobs = [replace(WAITING, key="gpu", units=8), replace(WAITING, key="cpu", kind="CPU", units=1)]
    assert to_start(jobs, {"GPU": 4, "CPU": 1}) == ["cpu"]


@st.composite
def queues(draw: st.DrawFn) -> list[PoolJob]:
    job = st.builds(
        PoolJob,
        kind=st.sampled_from(["CPU", "GPU"]),
        units=st.integers(1, 8),
        used=st.floats(0, 100),
        since=st.floats(0, 100),
        running=st.booleans(),
        key=st.just(""),
    )
    return [replace(one, key=str(i)) for i, one in enumerate(draw(st.lists(job, max_size=8)))]


@settings(max_examples=300)
@given(queues(), st.integers(0, 16), st.integers(0, 16))
def test_no_unit_is_given_twice_and_every_job_gets_its_turn(jobs: list[PoolJob], cpus: int, gpus: int) -> None:
    capacity = {"CPU": float(cpus), "GPU": float(gpus)}
    held = {kind: sum(job.units for job in jobs if job.kind == kind and job.running) for kind in capacity}
    started = to_start(jobs, capacity)
    by_key = {job.key: job for job in jobs}
    for kind, units in capacity.items():
        begun = sum(by_key[key].units for key in started if by_key[key].kind == kind)
        assert begun == 0 or held[kind] + begun <= units
    assert all(not by_key[key].running for key in started)
    # When all running trainings have ended, every job that can ever fit begins at some time.
    left = [replace(job, running=False) for job in jobs if job.units <= capacity[job.kind]]
    for _ in range(len(left)):
        begun_now = set(to_start(left, capacity))
        assert begun_now or not left
        left = [job for job in left if job.key not in begun_now]
    assert left == []


@pytest.mark.parametrize(
    ("settings", "gpus", "demand"),
    [
        (LocalSettings(), 1.0, Demand("GPU", 2)),
        (LocalSettings(), 0.0, Demand("CPU", 2)),
        (LocalSettings(device="cpu"), 1.0, Demand("CPU", 2)),  # the demo's settings, on a machine with a GPU
        (EasyR1Settings(nodes=3, gpus_per_node=4), 1.0, Demand("GPU", 12)),
    ],
)
def test_a_training_asks_for_its_workers_gpus_or_cpus(
    monkeypatch: pytest.MonkeyPatch, settings: TrainerSettings, gpus: float, demand: Demand
) -> None:
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0, "GPU": gpus})
    assert demand_of(settings, 2) == demand
