"""The EasyR1 trainer with a fake EasyR1 on a real Ray with stand-in GPUs: killed, resumed, and its GPUs free again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from easyr1_jobs import FAKE, SETTINGS, job_in, misbehaving
from local_tiny import save_tiny
from safetensors.torch import load_file

from core.statistics.guard import Guard
from storage.checkpoints import manifest
from tests.live import wait_until
from trainers.base import TrainError, TrainJob
from trainers.easyr1.config import rollout_seed
from trainers.easyr1.launch import EasyR1Trainer


@pytest.fixture(scope="module")
def _ray() -> Iterator[None]:
    ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"))


def free(job: TrainJob) -> None:
    """The GPUs are there again, and nothing of what was started is left."""
    wait_until(lambda: ray.available_resources().get("GPU") == 2, "the GPUs to be free")
    pid = int((job.work_dir / "easyr1" / "checkpoints" / "helper.pid").read_text())
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie", "its Ray to be gone")


@pytest.mark.usefixtures("_ray")
def test_a_job_to_its_end(tmp_path: Path, start: Path) -> None:
    job, heard = job_in(tmp_path, start), []
    result = EasyR1Trainer(SETTINGS).train(job, lambda step, metrics: heard.append((step, metrics["reward_mean"])))
    assert result.step == 4
    assert [step for step, _ in heard] == [1, 2, 3, 4]
    assert [metrics["step"] for metrics in result.metrics] == [1, 2, 3, 4]
    assert result.metrics[1]["kl"] == 0.02
    assert {"majority_share", "unparsed_share", "entropy", "response_length"} <= result.metrics[0].keys()
    before, after = (load_file(folder / "model.safetensors") for folder in (start, result.folder))
    assert all((after[name] - before[name]).sub(4).abs().max() < 1e-2 for name in before)
    assert "tokenizer.json" in manifest(result.folder)  # it can be published
    log = (job.work_dir / "easyr1" / "easyr1.log").read_text()
    assert "GPUs 0,1" in log
    free(job)
    again = EasyR1Trainer(SETTINGS).train(job, lambda *_: pytest.fail("a finished job does nothing"))
    assert again == result


@pytest.mark.usefixtures("_ray")
def test_a_failed_training_goes_on_from_its_checkpoint(tmp_path: Path, start: Path) -> None:
    """It failed while it wrote one: EasyR1 removes before it writes, and never its first."""
    job, heard = misbehaving(job_in(tmp_path, start, steps=8), "fail_while_saving=8"), []
    with pytest.raises(TrainError, match=r"(?s)EasyR1 failed \(exit status 1\).*illegal memory access"):
        EasyR1Trainer(SETTINGS, restarts=0).train(job, lambda step, _: heard.append(step))
    free(job)
    result = EasyR1Trainer(SETTINGS, restarts=0).train(job, lambda step, _: heard.append(step))
    assert heard == [1, 2, 3, 4, 5, 6, 7, 7, 8]  # step 7 had no checkpoint
    log = (job.work_dir / "easyr1" / "easyr1.log").read_text()
    seeds = [int(line.removeprefix("seed ")) for line in log.splitlines() if line.startswith("seed ")]
    assert seeds == [rollout_seed(job, 0), rollout_seed(job, 6)]  # other rollouts than those that it begins with
    assert (result.step, len(result.metrics)) == (8, 8)


@pytest.mark.usefixtures("_ray")
def test_an_interruption_ends_all_of_it(tmp_path: Path, start: Path) -> None:
    def interrupt(step: int, _: dict[str, float]) -> None:
        if step == 2:
            raise KeyboardInterrupt

    job = misbehaving(job_in(tmp_path, start), "hang_at=3")
    with pytest.raises(KeyboardInterrupt):
        EasyR1Trainer(SETTINGS).train(job, interrupt)
    free(job)


@pytest.mark.usefixtures("_ray")
def test_the_guard_ends_it_at_the_step_that_it_saw(tmp_path: Path, start: Path) -> None:
    guard = Guard(no_entropy="stop", window=2, entropy_floor=0.5)  # 1, 1/2, 1/3, 1/4: medians .75, .42, .29
    job = misbehaving(replace(job_in(tmp_path, start, steps=8), guard=guard), "hang_at=5")
    result = EasyR1Trainer(SETTINGS).train(job, lambda *_: None)
    assert (result.step, len(result.metrics)) == (4, 4)
    free(job)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"source": "nowhere"}, "trainer.source: expected a checkout of EasyR1, there is no nowhere/verl"),
        (
            {"source": "changed"},
            "keep from being the same for equal prompts .* vLLMRollout.__init__ in .* has no sampling_p",
        ),
        ({"gpus_per_node": 4}, "trainer.gpus_per_node: 4 asked for, the largest machine of Ray.s has 2"),
        ({"nodes": 2}, "trainer.nodes: 2 machines asked for, Ray has 1 of 2 GPUs"),
    ],
)
@pytest.mark.usefixtures("_ray")
def test_what_cannot_start_is_refused_at_once(
    tmp_path: Path, start: Path, changes: dict[str, Any], complaint: str
) -> None:
    if changes.get("source") == "changed":  # an EasyR1 whose rollouts we could not keep from repeating
        changes = {"source": str(tmp_path / "changed")}
        shutil.copytree(FAKE, tmp_path / "changed")
        rollout = tmp_path / "changed" / "verl/workers/rollout/vllm_rollout_spmd.py"
        rollout.write_text(rollout.read_text().replace("sampling_params", "parameters"))
    with pytest.raises(TrainError, match=complaint):
        EasyR1Trainer(SETTINGS.model_copy(update=changes)).train(job_in(tmp_path, start), lambda *_: None)


@pytest.mark.usefixtures("_ray")
def test_another_jobs_folder_is_refused(tmp_path: Path, start: Path) -> None:
    EasyR1Trainer(SETTINGS).train(job_in(tmp_path, start, steps=1), lambda *_: None)
    with pytest.raises(TrainError, match="belongs to another job"):
        EasyR1Trainer(SETTINGS).train(job_in(tmp_path, start, steps=2), lambda *_: None)
