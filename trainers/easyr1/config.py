"""Turns a `TrainJob` into the folder that EasyR1 starts from: its configuration, data set and reward function.

The configuration keys are EasyR1's. Tests compare the file of every method with a recorded table of these keys, and
with EasyR1's own source where it is installed (tests/trainers/test_easyr1_contract.py).
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from math import gcd
from pathlib import Path
from typing import Any

import yaml

from core.methods import Method
from core.seeds import seed_for
from core.settings.trainers import EasyR1Settings
from trainers.base import SOLVER_SERVICE, ChallengerJob, SolverJob, TrainError, TrainJob
from trainers.easyr1 import reward_shim
from trainers.easyr1.dataset import CHAT_TEMPLATE, write_dataset
from trainers.easyr1.fit import uneven, unfit
from trainers.easyr1.start_model import readable_start
from trainers.rollouts import folder_in

CONFIG, CHECKPOINTS = "config.yaml", "checkpoints"
_JOB, _SHIM, _TEMPLATE, _START = "job.json", "reward_shim.py", "chat_template.jinja", "start"
_NO_DUAL_CLIP = 1e9  # a ratio that no token reaches, because no paper uses the dual clip
_EXPERIENCE = 4  # times as many sequences in a forward pass without gradients as in one with them
_PATIENCE_S = 600.0  # how long the reward waits for a lost replica, which is back within minutes; the GPUs idle
# Checkpoints to keep: the newest, the one before it, and the first, which EasyR1 always keeps as its best. The one
# before it is needed because EasyR1 removes old checkpoints before it writes the newest, and the machine may fail while
# that one is half written.
_KEPT = 3
_BATCHED_TOKENS = 8192  # EasyR1's default for vLLM's max_num_batched_tokens; a prompt with its longest answer must fit


def render(job: TrainJob, settings: EasyR1Settings, tokenizer: Any, folder: Path) -> Path:
    """Write everything that EasyR1 needs for `job` into `folder`, and return the path of the configuration.

    `tokenizer` belongs to the start model. Raises `TrainError`, before it writes anything, if EasyR1 cannot train the
    job.
    """
    own_reference = job.reference is not None and job.reference.sha256 != job.start.sha256
    continued = job.rounds is not None and job.rounds.steps > job.training.steps
    retention = job.vocabulary_retention if isinstance(job, ChallengerJob) else 1.0
    faults = [
        *unfit(
            job.role,
            job.training,
            job.reward,
            own_reference=own_reference,
            continued=continued,
            vocabulary_retention=retention,
        )
    ]
    if faults:
        kind = f"{job.role}.reward {job.reward.type}" if isinstance(job.reward, Method) else f"{job.role}.reward"
        listed = "".join(f"\n  {fault}" for fault in faults)
        raise TrainError(f"{kind}: EasyR1 cannot train this as asked; use trainer.type = 'local', or change:{listed}")
    if faults := [*uneven(job.training, job.rollouts, settings)]:
        raise TrainError("\n".join(map(str, faults)))
    folder = folder.resolve()
    start = readable_start(Path(job.start.path).resolve(), folder / _START)
    job = replace(job, start=replace(job.start, path=str(start)))
    folder.mkdir(parents=True, exist_ok=True)
    longest = write_dataset(job, tokenizer, folder)
    (folder / _TEMPLATE).write_text(CHAT_TEMPLATE, encoding="utf-8")
    reward_job = {  # what the reward shim reads (`reward_shim.RewardJob`)
        "role": job.role,
        "key": job.key,
        "run_seed": job.run_seed,
        "steps_before": job.steps_before,
        "rollouts": job.rollouts,
        "trained": job.trained,
        "max_tokens": job.training.sampling.max_tokens,
        "patience_s": _PATIENCE_S,
        "stored_prompts": job.stored_prompts,
        "rollouts_folder": str(folder_in(job.work_dir)),
        "reward": job.reward.model_dump(mode="json"),
    }
    if isinstance(job, ChallengerJob):
        reward_job["solver"] = SOLVER_SERVICE.dump_python(job.solver, mode="json")
        reward_job |= {"earlier": job.earlier, "exact": job.exact}
    elif isinstance(job, SolverJob):
        reward_job["signals"] = job.signals.model_dump(mode="json")
    (folder / _JOB).write_text(json.dumps(reward_job, indent=1), encoding="utf-8")
    shutil.copyfile(reward_shim.__file__, folder / _SHIM)
    path = folder / CONFIG
    path.write_text(yaml.safe_dump(configuration(job, settings, folder, longest), sort_keys=False), encoding="utf-8")
    return path


def configuration(job: TrainJob, settings: EasyR1Settings, folder: Path, longest_prompt: int) -> dict[str, Any]:
    """EasyR1's configuration as nested dictionaries; `longest_prompt` is in tokens."""
    return {
        "data": {
            "train_files": str(folder / "train.parquet"),
            "val_files": str(folder / "validation.parquet"),
            "prompt_key": "prompt",
            "answer_key": "ground_truth",
            "override_chat_template": str(folder / _TEMPLATE),
            "max_prompt_length": longest_prompt,
            "max_response_length": job.training.sampling.max_tokens,
            "rollout_batch_size": job.training.prompts_per_step,
            "val_batch_size": 1,
            "shuffle": False,  # write_dataset puts the rows in the order of the steps
            "seed": job.run_seed % 2**31,
            # No prompt is too long, and removing one would shift the prompts of all later steps.
            "filter_overlong_prompts": False,
        },
        "algorithm": {
            "adv_estimator": "rloo",  # passes the reward shim's advantages on unchanged: see fit.py
            "disable_kl": False,  # the KL is measured even if its coefficient is 0
            "use_kl_loss": job.reward.kl_in == "loss",
            "kl_penalty": "low_var_kl",  # k3
            "kl_coef": job.reward.kl_coefficient,
            "online_filtering": False,
        },
        "worker": {
            "actor": _actor(job, settings),
            "rollout": _rollout(job, settings, longest_prompt),
            # The reference's parameters are kept in float32 like the policy's. EasyR1's default is bfloat16, which also
            # rounds the rotary frequencies: the KL would start above 0 and grow with the length of an answer. Both
            # models compute in bfloat16.
            "ref": {
                "fsdp": {"enable_full_shard": True, "torch_dtype": "fp32"},
                "offload": {"offload_params": settings.offload},
            },
            "reward": {
                "reward_function": f"{folder / _SHIM}:compute_score",
                "reward_function_kwargs": {"job": str(folder / _JOB)},
                "skip_special_tokens": True,
                "num_cpus": 2,
            },
        },
        "trainer": {
            "total_epochs": 1,
            "max_steps": job.training.steps,
            "project_name": "coevo",
            "experiment_name": job.key,
            "logger": ["file", "console"],
            "nnodes": settings.nodes,
            "n_gpus_per_node": settings.gpus_per_node,
            "val_freq": -1,
            "val_before_train": False,
            "save_freq": job.training.checkpoint_every,
            "save_limit": _KEPT,
            "save_checkpoint_path": str(folder / CHECKPOINTS),
            "find_last_checkpoint": True,
        },
    }


def _actor(job: TrainJob, settings: EasyR1Settings) -> dict[str, Any]:
    training, objective = job.training, job.reward
    sequences = training.prompts_per_step * job.rollouts  # which EasyR1 divides evenly
    return {
        "global_batch_size": training.prompts_per_update or training.prompts_per_step,  # prompts, not rollouts
        "micro_batch_size_per_device_for_update": settings.update_micro_batch,
        "micro_batch_size_per_device_for_experience": gcd(_EXPERIENCE * settings.update_micro_batch, sequences),
        "max_grad_norm": training.max_grad_norm,
        "clip_ratio_low": objective.clip_low,
        "clip_ratio_high": objective.clip_high,
        "clip_ratio_dual": _NO_DUAL_CLIP,
        "loss_avg_mode": "seq" if objective.loss_average == "sequence" else "token",
        "ppo_epochs": 1,  # one pass over the rollouts of a step, as in every paper here
        "model": {
            "model_path": job.start.path,
            "enable_gradient_checkpointing": True,
            "trust_remote_code": False,
        },
        "optim": {
            "lr": training.learning_rate,
            "betas": list(training.betas),
            "weight_decay": training.weight_decay,
            "strategy": "adamw",
            "lr_scheduler_type": training.schedule,
            "lr_warmup_steps": training.warmup_steps,
            "min_lr_ratio": 0.0,
        },
        "fsdp": {"enable_full_shard": True, "enable_cpu_offload": False},
        "offload": {"offload_params": settings.offload, "offload_optimizer": settings.offload},
    }


def rollout_seed(job: TrainJob, steps_done: int) -> int:
    """The seed for the rollouts of an EasyR1 process that continues after step `steps_done`.

    It differs from one start to the next, so that a resumed training does not repeat its rollouts (corrections.py). It
    has 31 bits, because EasyR1 passes it to numpy.
    """
    return seed_for(job.run_seed, job.key, job.steps_before + steps_done, "rollouts") % 2**31


def _rollout(job: TrainJob, settings: EasyR1Settings, longest_prompt: int) -> dict[str, Any]:
    sampling = job.training.sampling
    longest_sequence = longest_prompt + sampling.max_tokens
    return {
        "n": job.rollouts,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": -1,  # all tokens
        "seed": rollout_seed(job, 0),
        "gpu_memory_utilization": settings.gpu_memory_share,
        "tensor_parallel_size": settings.tensor_parallel,
        "max_model_len": longest_sequence,
        "max_num_batched_tokens": max(_BATCHED_TOKENS, longest_sequence),
        "val_override_config": {"temperature": sampling.temperature, "top_p": sampling.top_p, "n": 1},
    }
