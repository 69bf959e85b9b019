"""The EasyR1 trainer with a fake EasyR1, on a real Ray whose GPUs are made up: jobs are killed and resumed, and the
GPUs are free afterwards."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from easyr1_jobs import FAKE, SETTINGS, job_in, misbehaving
from safetensors.torch import load_file

from core.statistics.guard import Guard
from storage.files.checkpoints import manifest
from tests.fake_clock import clock_that_runs_while
from tests.live import wait_until
from tests.processes import status_of
from trainers.base import TrainError, TrainJob
from trainers.easyr1.config import rollout_seed
from trainers.easyr1.launch import EasyR1Trainer

pytestmark = pytest.mark.usefixtures("_ray")


def wait_until_free(job: TrainJob) -> None:
    """Wait until the GPUs are free again and no process that was started is left."""
    wait_until(lambda: ray.available_resources().get("GPU") == 2, "the GPUs to be free")
    pid = int((job.work_dir / "easyr1" / "checkpoints" / "helper.pid").read_text())
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie", "its Ray to be gone")


def test_a_job_trains_to_its_end_and_another_job_may_not_use_its_folder(tmp_path: Path, start: Path) -> None:
    job, reported = job_in(tmp_path, start), []
    result = EasyR1Trainer(SETTINGS).train(job, lambda step, metrics: reported.append((step, metrics["reward_mean"])))
    assert result.step == 4
    assert [step for step, _ in reported] == [1, 2, 3, 4]
    assert [metrics["step"] for metrics in result.metrics] == [1, 2, 3, 4]
    assert (result.metrics[1]["kl"], result.metrics[1]["learning_rate"]) == (0.02, job.training.learning_rate)
    assert {"majority_share", "unparsed_share", "entropy", "response_length"} <= result.metrics[0].keys()
    before, after = (load_file(folder / "model.safetensors") for folder in (start, result.folder))
    assert all((after[name] - before[name]).sub(4).abs().max() < 1e-2 for name in before)
    assert "tokenizer.json" in manifest(result.folder)  # it can be published
    log = (job.work_dir / "easyr1" / "easyr1.log").read_text()
    assert "GPUs 0,1" in log
    wait_until_free(job)
    again = EasyR1Trainer(SETTINGS).train(job, lambda *_: pytest.fail("a finished job does nothing"))
    assert again == result
    with pytest.raises(TrainError, match="another job"):
        EasyR1Trainer(SETTINGS).train(job_in(tmp_path, start, steps=5), lambda *_: None)


def test_a_failed_training_goes_on_from_its_checkpoint(
    tmp_path: Path, start: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The training fails while it writes a checkpoint: EasyR1 removes old ones before it writes, except the first."""
    job, reported_steps = misbehaving(job_in(tmp_path, start, steps=8), "fail_while_saving=8"), []
    with pytest.raises(TrainError, match="exit status 1"):
        EasyR1Trainer(SETTINGS, restarts=0).train(job, lambda step, _: reported_steps.append(step))
    [last_lines] = [record.getMessage() for record in caplog.records if record.name == "trainers.last_lines"]
    assert last_lines.startswith("the last lines of easyr1.log:\n")
    assert "illegal memory access" in last_lines
    wait_until_free(job)
    result = EasyR1Trainer(SETTINGS, restarts=0).train(job, lambda step, _: reported_steps.append(step))
    assert reported_steps == [1, 2, 3, 4, 5, 6, 7, 7, 8]  # step 7 had no checkpoint
    log = (job.work_dir / "easyr1" / "easyr1.log").read_text()
    seeds = [int(line.removeprefix("seed ")) for line in log.splitlines() if line.startswith("seed ")]
    assert seeds == [rollout_seed(job, 0), rollout_seed(job, 6)]  # the resumed training draws different rollouts
    assert (result.step, len(result.metrics)) == (8, 8)


def test_a_step_that_was_saved_and_not_logged_has_no_metrics_but_those_after_it_have(
    tmp_path: Path, start: Path
) -> None:
    job, steps = misbehaving(job_in(tmp_path, start), "fail_after_saving=2"), list[int]()
    result = EasyR1Trainer(SETTINGS).train(job, lambda step, _: steps.append(step))
    assert steps == [1, 3, 4]
    assert [metrics["step"] for metrics in result.metrics] == [1, 2, 3, 4]
    assert result.metrics[1] == {"step": 2}
    assert "reward_mean" in result.metrics[2]
    wait_until_free(job)


def test_an_interruption_ends_all_processes_and_what_easyr1_had_logged_is_read_when_the_training_goes_on(
    tmp_path: Path, start: Path
) -> None:
    def interrupt(step: int, _: dict[str, float]) -> None:
        if step == 2:
            raise KeyboardInterrupt

    job, steps = misbehaving(job_in(tmp_path, start), "hang_once_at=3"), list[int]()
    with pytest.raises(KeyboardInterrupt):
        EasyR1Trainer(SETTINGS).train(job, interrupt)
    wait_until_free(job)
    file = job.work_dir / "metrics.jsonl"
    file.write_text(file.read_text().splitlines(keepends=True)[0])  # as if it had been killed before it read step 2
    result = EasyR1Trainer(SETTINGS).train(job, lambda step, _: steps.append(step))
    assert steps == [2, 3, 4]
    assert all("reward_mean" in metrics for metrics in result.metrics)


def test_the_guard_ends_a_training_at_the_step_of_its_alarm(tmp_path: Path, start: Path) -> None:
    # The entropies are 1, 1/2, 1/3, 1/4; their medians over two steps are .75, .42, .29.
    guard = Guard(actions={"no_entropy": "stop"}, window=2).model_copy(update={"entropy_floor": 0.5})
    job = misbehaving(replace(job_in(tmp_path, start, steps=8), guard=guard), "hang_at=5")
    result = EasyR1Trainer(SETTINGS).train(job, lambda *_: None)
    assert (result.step, len(result.metrics)) == (4, 4)
    wait_until_free(job)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"source": "nowhere"}, "trainer.source: .*nowhere/verl"),
        ({"source": "changed"}, "trainer.source: .*vLLMRollout.__init__ .*sampling_params"),
        ({"gpus_per_node": 4}, "trainer.gpus_per_node: "),
        ({"nodes": 2}, "trainer.nodes: "),
    ],
)
def test_a_job_that_cannot_start_is_refused_at_once(
    tmp_path: Path, start: Path, changes: dict[str, Any], named: str
) -> None:
    if changes.get("source") == "changed":  # an EasyR1 whose rollouts' seeds cannot be corrected
        changes = {"source": str(tmp_path / "changed")}
        shutil.copytree(FAKE, tmp_path / "changed")
        rollout = tmp_path / "changed" / "verl/workers/rollout/vllm_rollout_spmd.py"
        rollout.write_text(rollout.read_text().replace("sampling_params", "parameters"))
    with pytest.raises(TrainError, match=named):
        EasyR1Trainer(SETTINGS.model_copy(update=changes)).train(job_in(tmp_path, start), lambda *_: None)


@pytest.mark.parametrize(("misbehaviour", "ends"), [("hang_once_at=3", True), ("hang_at=3", False)])
def test_an_easyr1_that_hangs_is_killed_and_goes_on_once(
    misbehaviour: str,
    ends: bool,
    tmp_path: Path,
    start: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The caller's clock goes on only while the fake EasyR1 hangs."""
    job, steps = misbehaving(job_in(tmp_path, start), misbehaviour), list[int]()
    hanging = job.work_dir / "easyr1" / "checkpoints" / "has_hung"

    def hangs() -> bool:
        text = hanging.read_text() if hanging.exists() else ""
        return bool(text) and status_of(int(text)) is not None

    clock_that_runs_while(hangs, monkeypatch, SETTINGS.progress_timeout / 4)
    trainer = EasyR1Trainer(SETTINGS)
    if ends:
        assert trainer.train(job, lambda step, _: steps.append(step)).step == 4
        assert steps == [1, 2, 3, 4]
    else:
        with pytest.raises(TrainError, match="7200 s"):
            trainer.train(job, lambda step, _: steps.append(step))
        assert steps == [1, 2]
    assert "7200 s" in caplog.text
    wait_until_free(job)
