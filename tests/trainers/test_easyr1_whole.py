"""EasyR1's own, unmodified code, run by our trainer on a CPU: it reserves GPUs, starts its Ray with two ranks, is
killed and resumed.

It takes minutes, so only `make easyr1` runs it: that sets `COEVO_EASYR1_WHOLE` beside the two variables of
test_easyr1_worker.py. easyr1_on_a_cpu/ has the replacements of CUDA, vLLM and flash-attn.
"""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
import ray
from easyr1_worlds import PYTHON, challenger_job, solver_job, votes
from safetensors.torch import load_file

from core.settings.trainers import EasyR1Settings
from orchestrator.installation.home import MICRO_MODEL
from storage.files.checkpoints import manifest
from tests.fake_service import fake_service
from tests.live import wait_until
from trainers.base import TrainJob
from trainers.easyr1.launch import EasyR1Trainer

VARIABLES = ("COEVO_EASYR1_WHOLE", "COEVO_EASYR1_SOURCE", "COEVO_EASYR1_PYTHON")
pytestmark = [
    pytest.mark.skipif(
        any(name not in os.environ for name in VARIABLES), reason=f"{', '.join(VARIABLES)}: make easyr1"
    ),
    pytest.mark.timeout(1800),
]
SETTINGS = EasyR1Settings(
    python=str(PYTHON),
    source=os.environ.get("COEVO_EASYR1_SOURCE", ""),
    gpus_per_node=2,
    update_micro_batch=4,
)


def running(job: TrainJob) -> list[psutil.Process]:
    """EasyR1's main process, while it lives."""
    config = (job.work_dir / "easyr1" / "config.yaml").as_posix()
    every = psutil.process_iter(["cmdline"])
    return [p for p in every if {"trainers.easyr1.start", f"config={config}"} <= set(p.info["cmdline"] or [])]


@pytest.mark.usefixtures("_ray")
def test_a_killed_solver_training_on_two_ranks_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    job, reported = solver_job(tmp_path / "job", "rzero", {}, steps=4, checkpoint_every=1), []

    def kill(step: int, metrics: dict[str, float]) -> None:
        reported.append((step, metrics))
        if [reported_step for reported_step, _ in reported] == [1, 2]:
            mains = [process for process in running(job) if "child.py" not in " ".join(process.cmdline())]
            assert len(mains) == 1
            mains[0].kill()

    result = EasyR1Trainer(SETTINGS, restarts=1).train(job, kill)
    assert [step for step, _ in reported] == [1, 2, 3, 4]
    assert result.step == 4
    log = (job.work_dir / "easyr1" / "easyr1.log").read_text(errors="replace")
    assert log.count("Load from checkpoint") == 1
    checkpoints = sorted(path.name for path in (job.work_dir / "easyr1" / "checkpoints").glob("global_step_*"))
    assert checkpoints == ["global_step_1", "global_step_3", "global_step_4"]
    expected_metrics = {"reward_mean", "kl", "entropy", "grad_norm", "learning_rate", "response_length"}
    assert all(expected_metrics <= metrics.keys() for _, metrics in reported)
    before, after = (load_file(folder / "model.safetensors") for folder in (MICRO_MODEL, result.folder))
    assert all(not before[name].equal(after[name].float()) for name in before)
    assert "tokenizer.json" in manifest(result.folder)  # it can be published
    assert running(job) == []
    wait_until(lambda: ray.available_resources().get("GPU") == 2, "the GPUs to be free")


@pytest.mark.usefixtures("_ray")
def test_a_challenger_on_two_ranks_asks_different_questions(tmp_path: Path) -> None:
    with fake_service(votes) as (service, requests):
        job = challenger_job(tmp_path / "job", service.url, steps=1, prompts_per_step=8, checkpoint_every=1)
        result = EasyR1Trainer(SETTINGS, restarts=0).train(job, lambda *_: None)
    assert result.step == 1
    assert abs(result.metrics[0]["kl"]) < 1e-8  # the reference is the model that it starts from; ranks round
    questions = {body["messages"][-1]["content"] for _, body, _ in requests}
    assert len(questions) > 2 * job.rollouts  # with the same seed in all requests there would be one for each rollout
