"""Runs one FSDPWorker of EasyR1 without Ray: `python easyr1_worker.py SOURCE JOBS`, in EasyR1's environment.

JOBS is JSON: a list of `{"config", "steps", "out", "overrides"}`. Each job's steps run in the order of EasyR1's trainer
(ray_trainer.py): data set, rollouts, reward manager, log-probabilities, advantages, update and checkpoint. The script
writes into `out`: `step_K.json`, with the step's rollouts and what EasyR1 computed from them, and
`checkpoints/global_step_K/actor`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import uuid
from pathlib import Path
from typing import Any


def run(config: str, steps: int, out: str, overrides: list[str]) -> None:
    from omegaconf import OmegaConf
    from verl.trainer.config import PPOConfig
    from verl.utils.dataset import RLHFDataset
    from verl.utils.tokenizer import get_tokenizer
    from verl.workers.fsdp_workers import FSDPWorker
    from verl.workers.reward import AutoRewardManager

    tree = OmegaConf.merge(OmegaConf.structured(PPOConfig()), OmegaConf.load(config), OmegaConf.from_cli(overrides))
    settings: Any = OmegaConf.to_object(tree)
    settings.deep_post_init()
    settings.worker.actor.optim.training_steps = steps
    data = settings.data
    tokenizer = get_tokenizer(
        settings.worker.actor.model.model_path, override_chat_template=data.override_chat_template, use_fast=True
    )
    rows = RLHFDataset(
        data.train_files,
        tokenizer,
        None,
        prompt_key=data.prompt_key,
        answer_key=data.answer_key,
        max_prompt_length=data.max_prompt_length,
        filter_overlong_prompts=data.filter_overlong_prompts,
    )
    manager = AutoRewardManager(settings.worker.reward, tokenizer)
    worker = FSDPWorker(settings.worker, "actor_rollout_ref")
    worker.init_model()
    for step in range(1, steps + 1):
        size = data.rollout_batch_size
        record = _step(worker, manager, settings, [rows[i] for i in range((step - 1) * size, step * size)])
        worker.save_checkpoint(f"{out}/checkpoints/global_step_{step}/actor")
        Path(out, f"step_{step}.json").write_text(json.dumps(record))


def _step(worker: Any, manager: Any, settings: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    import numpy as np
    import torch
    from verl.protocol import DataProto
    from verl.trainer.core_algos import get_kl_controller
    from verl.trainer.ray_trainer import apply_kl_penalty, compute_advantage
    from verl.utils.dataset import collate_fn

    batch = DataProto.from_single_dict(collate_fn(rows), meta_info={})
    batch.non_tensor_batch["uid"] = np.array([str(uuid.uuid4()) for _ in rows], dtype=object)
    prompt_batch = batch.pop(
        batch_keys=["input_ids", "attention_mask", "position_ids"], non_tensor_batch_keys=["raw_prompt_ids"]
    )
    prompts = [list(map(int, ids)) for ids in prompt_batch.non_tensor_batch["raw_prompt_ids"]]
    batch.non_tensor_batch["prompt"] = np.array([json.dumps(prompt) for prompt in prompts], dtype=object)
    worker.prepare_rollout_engine()
    rollouts = worker.generate_sequences(prompt_batch)
    worker.release_rollout_engine()
    batch = batch.repeat(repeat_times=settings.worker.rollout.n, interleave=True).union(rollouts)
    # EasyR1's trainer also changes the order, to balance its ranks.
    batch.reorder(torch.randperm(len(batch), generator=torch.Generator().manual_seed(1)))
    batch.meta_info["global_token_num"] = batch.batch["attention_mask"].sum(-1).tolist()
    scores, figures = manager.compute_reward(batch)
    batch.batch["token_level_scores"] = scores
    batch = batch.union(worker.compute_log_probs(batch))
    batch = batch.union(worker.compute_ref_log_probs(batch))
    logged: dict[str, Any] = {}
    if settings.algorithm.use_kl_loss:
        batch.batch["token_level_rewards"] = scores
    else:
        controller = get_kl_controller(settings.algorithm)
        batch, logged = apply_kl_penalty(batch, controller, settings.algorithm.kl_penalty)
    batch = compute_advantage(batch, settings.algorithm.adv_estimator)
    updated = worker.update_actor(batch)
    lengths = batch.batch["response_mask"].sum(-1).tolist()

    def responses(name: str) -> list[list[float]]:
        return [row[:length] for row, length in zip(batch.batch[name].tolist(), lengths, strict=True)]

    return {
        "prompts": [json.loads(prompt) for prompt in batch.non_tensor_batch["prompt"]],
        "ground_truth": batch.non_tensor_batch["ground_truth"].tolist(),
        "responses": responses("responses"),
        "old_log_probs": responses("old_log_probs"),
        "ref_log_probs": responses("ref_log_probs"),
        "advantages": batch.batch["advantages"][:, 0].tolist(),
        "figures": {name: list(map(float, values)) for name, values in figures.items()},
        "metrics": logged | {name: [*map(float, values)] for name, values in updated.non_tensor_batch.items()},
    }


def main(source: str, jobs: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {**alone, "DISABLE_WORKER_INIT": "1"}
    sys.path.insert(0, source)
    from trainers.easyr1 import corrections

    corrections.install()
    for job in json.loads(jobs):
        run(**job)


if __name__ == "__main__":
    main(*sys.argv[1:])
