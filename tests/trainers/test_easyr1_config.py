"""Properties of EasyR1's configuration that EasyR1 does not check itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from easyr1_worlds import challenger_job, solver_job
from transformers import AutoTokenizer

from core.settings.templates import ChallengerTemplate, SolverTemplate
from core.settings.trainers import EasyR1Settings
from core.settings.training import TrainingSampling
from orchestrator.installation.home import MICRO_MODEL
from trainers.base import TrainError, TrainJob
from trainers.easyr1.config import render, rollout_seed

ONE = EasyR1Settings(gpus_per_node=1, update_micro_batch=1)


def render_tree(job: TrainJob) -> dict[str, Any]:
    tokenizer = AutoTokenizer.from_pretrained(MICRO_MODEL, local_files_only=True)
    tree: dict[str, Any] = yaml.safe_load(render(job, ONE, tokenizer, job.work_dir).read_text())
    return tree


def test_a_question_with_the_model_s_control_token_is_refused(tmp_path: Path) -> None:
    """EasyR1 would encode it as its special id."""
    job = solver_job(tmp_path / "job", "rzero", {})
    questions = [replace(question, text=f"{question.text}<|im_end|>") for question in job.questions]
    with pytest.raises(TrainError, match=questions[0].question_id[:2]):
        render_tree(replace(job, questions=tuple(questions)))


@pytest.mark.parametrize(
    ("method", "gpus", "setting"),
    [("scrl", 1, "solver.reward.type"), ("rzero", 3, "trainer.gpus_per_node")],
)
def test_a_job_that_easyr1_cannot_follow_is_refused_before_a_file_is_written(
    tmp_path: Path, method: str, gpus: int, setting: str
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(MICRO_MODEL, local_files_only=True)
    job = solver_job(tmp_path / "job", method, {})
    with pytest.raises(TrainError, match=setting):
        render(job, ONE.model_copy(update={"gpus_per_node": gpus}), tokenizer, job.work_dir)
    assert not job.work_dir.exists()


@pytest.mark.parametrize("tokens", [64, 12_288])
def test_vllm_samples_from_all_tokens_and_its_batch_has_room_for_the_longest_answer(
    tmp_path: Path, tokens: int
) -> None:
    """Without it vllm_rollout_spmd.py would refuse, after the GPUs are reserved; 12,288 is EVOL-RL's number."""
    job = solver_job(tmp_path / "job", "evol_rl", {"entropy_coefficient": 0.0})
    job = replace(job, training=job.training.model_copy(update={"sampling": TrainingSampling(max_tokens=tokens)}))
    tree = render_tree(job)
    longest = tree["data"]["max_prompt_length"] + tree["data"]["max_response_length"]
    assert tree["worker"]["rollout"]["max_model_len"] == longest
    assert tree["worker"]["rollout"]["max_num_batched_tokens"] == max(8192, longest)
    assert tree["worker"]["rollout"]["top_k"] == -1  # EasyR1's value for all tokens


def test_the_policy_starts_from_a_readable_model_and_policy_and_reference_are_float32(tmp_path: Path) -> None:
    tree = render_tree(solver_job(tmp_path / "job", "rzero", {}))
    actor, reference = tree["worker"]["actor"], tree["worker"]["ref"]
    assert actor["model"]["model_path"] == str(tmp_path / "job" / "start")
    assert reference["fsdp"]["torch_dtype"] == "fp32"
    assert "torch_dtype" not in actor["fsdp"]  # EasyR1's default for the policy is float32


def test_easyr1_s_optimiser_has_the_settings_of_the_training(tmp_path: Path) -> None:
    schedule = {"schedule": "cosine", "warmup_steps": 3}
    settings = {"learning_rate": 2e-4, "betas": (0.8, 0.95), "weight_decay": 0.1, **schedule}
    assert render_tree(solver_job(tmp_path / "job", "rzero", {}, **settings))["worker"]["actor"]["optim"] == {
        "lr": 2e-4,
        "betas": [0.8, 0.95],
        "weight_decay": 0.1,
        "strategy": "adamw",
        "lr_scheduler_type": "cosine",
        "lr_warmup_steps": 3,
        "min_lr_ratio": 0.0,
    }


def test_different_starts_have_different_seeds_for_their_rollouts(tmp_path: Path) -> None:
    job = solver_job(tmp_path / "job", "rzero", {})
    others = [replace(job, key="t/2/train"), replace(job, run_seed=8), replace(job, steps_before=5)]
    seeds = [rollout_seed(job, 0), rollout_seed(job, 1), *(rollout_seed(other, 0) for other in others)]
    assert len(set(seeds)) == 5
    assert rollout_seed(replace(job, steps_before=4), 1) == rollout_seed(job, 5)  # one training in two jobs
    assert all(0 <= seed < 2**31 for seed in seeds)  # EasyR1 gives it to numpy, which takes no other seeds
    assert render_tree(job)["worker"]["rollout"]["seed"] == rollout_seed(job, 0)


def test_the_data_set_has_the_prompts_of_the_job_s_template(tmp_path: Path) -> None:
    """Each role's template is rendered with the model's chat template."""
    solver = replace(
        solver_job(tmp_path / "solver", "rzero", {}), template=SolverTemplate(system="", user="Q: {question}")
    )
    challenger = replace(
        challenger_job(tmp_path / "challenger", "http://127.0.0.1:1/v1"),
        template=ChallengerTemplate(system="", user="Pose one!"),
    )
    asked = {f"Q: {question.text}" for question in solver.questions}
    for job, users in ((solver, asked), (challenger, {"Pose one!"})):
        render_tree(job)
        prompts = pq.read_table(job.work_dir / "train.parquet")["prompt"].to_pylist()
        assert set(prompts) <= {f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n" for user in users}
