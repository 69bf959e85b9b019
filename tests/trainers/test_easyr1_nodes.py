"""EasyR1 on several machines: a fake EasyR1 starts its own real Ray on nodes of ours, all on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import ray
from easyr1_jobs import SETTINGS, job_in, misbehaving
from ray.cluster_utils import Cluster

from tests.live import wait_until
from trainers.base import TrainJob
from trainers.easyr1.launch import EasyR1Trainer

pytestmark = pytest.mark.slow
TWO = SETTINGS.model_copy(update={"nodes": 2, "gpus_per_node": 1})


@pytest.fixture(scope="module")
def machines() -> Iterator[Cluster]:
    """A Ray cluster of three nodes: two have a GPU each, the third has none."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(num_cpus=1, num_gpus=1)
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def wait_until_free(job: TrainJob) -> None:
    """Wait until the GPUs are free again and no process of EasyR1's Ray is left."""
    wait_until(lambda: ray.available_resources().get("GPU") == 2, "the GPUs to be free")
    log = (job.work_dir / "easyr1" / "easyr1.log").as_posix()
    wait_until(lambda: not running(log), "its end")
    assert not running("/er1-")


def running(text: str) -> list[psutil.Process]:
    """The processes that have this text in their arguments."""
    every = psutil.process_iter(["cmdline"])
    return [process for process in every if any(text in part for part in process.info["cmdline"] or [])]


def test_machines_form_one_ray_and_a_lost_machine_is_replaced_by_another(
    machines: Cluster, tmp_path: Path, start: Path
) -> None:
    job, reported_steps = misbehaving(job_in(tmp_path, start), "hang_at=4"), []

    def lose_one(step: int, _: dict[str, float]) -> None:
        reported_steps.append(step)
        if reported_steps == [1, 2, 3]:
            machines.remove_node(next(iter(machines.worker_nodes)), allow_graceful=False)
            (job.work_dir / "easyr1" / "misbehave").write_text("")
            machines.add_node(num_cpus=1, num_gpus=1)

    assert EasyR1Trainer(TWO, restarts=1).train(job, lose_one).step == 4
    assert reported_steps == [1, 2, 3, 3, 4]  # step 3 had no checkpoint
    machines_seen = json.loads((job.work_dir / "easyr1" / "checkpoints" / "machines.json").read_text())
    assert len({seen["node"] for seen in machines_seen}) == 2
    assert {seen["node"] for seen in machines_seen}.isdisjoint(node["NodeID"] for node in ray.nodes())
    assert all(seen["seed"] is None for seen in machines_seen)  # corrections.py works in each of EasyR1's processes
    wait_until_free(job)
