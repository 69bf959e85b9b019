"""A fake EasyR1: it reads the configuration, calls the reward function, logs and saves as EasyR1 does.

It does not learn: a step adds 1 (or $FAKE_EASYR1_ADDS) to every number of the model. Its shard is in safetensors, not
in torch's format, because importing torch takes longer than everything else that it does. A file `misbehave` beside the
configuration makes it fail (`fail_while_saving=K` or `fail_after_saving=K`, once) or hang (`hang_at=K`, or
`hang_once_at=K`) at a step K.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import ray
import yaml
from safetensors.numpy import load_file, save_file


def main(path: str, *overrides: str) -> None:
    config = yaml.safe_load(Path(path).read_text())
    for override in overrides:  # worker.rollout.seed=7
        _override(config, *override.split("="))
    trainer, data, actor = config["trainer"], config["data"], config["worker"]["actor"]
    folder = Path(trainer["save_checkpoint_path"])
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "experiment_log.jsonl"
    log.write_text("")  # as EasyR1's file logger does
    rows = pq.read_table(data["train_files"]).to_pylist()
    reward = _reward(config)
    start, learning_rate = Path(actor["model"]["model_path"]), actor["optim"]["lr"]
    added = float(os.environ.get("FAKE_EASYR1_ADDS", "1"))
    weights, done = load_file(start / "model.safetensors"), 0
    tracker = folder / "checkpoint_tracker.json"
    if tracker.exists():
        done = json.loads(tracker.read_text())["last_global_step"]
        weights = load_file(folder / f"global_step_{done}" / "actor" / "model_world_size_1_rank_0.pt")
    # This process stands for the Ray that EasyR1 starts.
    helper = subprocess.Popen(["sleep", "600"], start_new_session=True)
    (folder / "helper.pid").write_text(str(helper.pid))
    print(f"GPUs {os.environ.get('CUDA_VISIBLE_DEVICES')}", flush=True)
    print(f"seed {config['worker']['rollout']['seed']}", flush=True)
    if trainer["nnodes"] > 1:
        (folder / "machines.json").write_text(json.dumps(_machines(trainer["nnodes"], trainer["n_gpus_per_node"])))
    for step in range(done + 1, trainer["max_steps"] + 1):
        _hang(step, folder)
        size = data["rollout_batch_size"]
        batch = _batch(rows[(step - 1) * size : step * size], config["worker"]["rollout"]["n"], step)
        scores = reward(batch)
        weights = {name: value + added for name, value in weights.items()}
        if step % trainer["save_freq"] == 0 or step == trainer["max_steps"]:
            _remove(folder, step, trainer["save_limit"])
            _fail("fail_while_saving", step, folder)
            _save(folder, step, weights, start)
            _fail("fail_after_saving", step, folder)
        names = dict.fromkeys(name for score in scores for name in score)
        means = {name: _mean([score[name] for score in scores if name in score]) for name in names}
        # EasyR1 logs the actor's KL of its last micro batch only; corrections.py adds the other KL.
        actor = {"kl_loss": 9.0, "entropy_loss": 1 / step, "grad_norm": 1.0, "lr": learning_rate}
        figures = {"reward": means, "actor": actor, "coevo": {"kl": 0.01 * step}}
        record = {"step": step, **figures, "response_length": {"mean": 3.0, "clip_ratio": 0.0}}
        with log.open("a") as file:
            file.write(json.dumps(record) + "\n")
    reward([{"response": "", "response_length": 1, "ground_truth": row["ground_truth"]} for row in _validation(data)])
    with log.open("a") as file:
        file.write(json.dumps({"step": trainer["max_steps"], "val": {"reward_score": 0.0}}) + "\n")
    helper.kill()


def _override(config: dict[str, Any], name: str, value: str) -> None:
    *tables, last = name.split(".")
    for table in tables:
        config = config[table]
    config[last] = yaml.safe_load(value)


def _machines(nodes: int, gpus: int) -> list[dict[str, str | int | None]]:
    """What a task that takes all GPUs of a machine, as EasyR1's workers do, sees on each machine."""

    @ray.remote
    def see() -> dict[str, str | int | None]:
        from verl.workers.rollout.vllm_rollout_spmd import vLLMRollout  # EasyR1 is on this process's path

        context = ray.get_runtime_context()
        return {
            "node": context.get_node_id(),
            "gpus": os.environ["CUDA_VISIBLE_DEVICES"],
            "seed": vLLMRollout(seed=7).sampling_params.seed,
        }

    ray.init(logging_level="warning")  # joins the Ray at RAY_ADDRESS
    group = ray.util.placement_group([{"GPU": gpus, "CPU": 1}] * nodes, strategy="STRICT_SPREAD")
    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
    tasks = [see.options(num_gpus=gpus, scheduling_strategy=strategy(group, node)).remote() for node in range(nodes)]
    machines: list[dict[str, str | int | None]] = ray.get(tasks, timeout=60)
    return machines


def _reward(config: dict[str, Any]) -> Any:
    settings = config["worker"]["reward"]
    file, name = settings["reward_function"].rsplit(":", 1)
    spec = importlib.util.spec_from_file_location("custom_reward_fn", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["custom_reward_fn"] = module
    spec.loader.exec_module(module)
    return lambda batch: getattr(module, name)(batch, **settings["reward_function_kwargs"])


def _batch(rows: list[dict[str, str]], n: int, step: int) -> list[dict[str, Any]]:
    """Random responses, in a random order."""
    rng = random.Random(step)
    batch = [
        {"response": rf"\boxed{{{rng.randint(0, 2)}}}", "response_length": 3, "ground_truth": row["ground_truth"]}
        for row in rows
        for _ in range(n)
    ]
    rng.shuffle(batch)
    return batch


def _validation(data: dict[str, Any]) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = pq.read_table(data["val_files"]).to_pylist()
    return rows


def _remove(folder: Path, step: int, limit: int) -> None:
    """Remove old checkpoints before a new one is written, as EasyR1 does; the first stays for ever, as its best."""
    done = sorted(int(path.name.removeprefix("global_step_")) for path in folder.glob("global_step_*"))
    others = [saved for saved in reversed(done) if saved < step and saved != done[0]]
    for old in others[max(limit - 2, 0) :]:
        shutil.rmtree(folder / f"global_step_{old}")


def _save(folder: Path, step: int, weights: dict[str, np.ndarray], start: Path) -> None:
    actor = folder / f"global_step_{step}" / "actor"
    (actor / "huggingface").mkdir(parents=True, exist_ok=True)
    save_file(weights, actor / "model_world_size_1_rank_0.pt")
    (actor / "huggingface" / "config.json").write_text((start / "config.json").read_text())
    (folder / "checkpoint_tracker.json").write_text(json.dumps({"last_global_step": step}))


def _fail(kind: str, step: int, folder: Path) -> None:
    once = folder / "failed"
    if step == _misbehaviour_step(kind, folder) and not once.exists():
        once.touch()
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def _hang(step: int, folder: Path) -> None:
    once = folder / "has_hung"
    if step == _misbehaviour_step("hang_at", folder) or (
        step == _misbehaviour_step("hang_once_at", folder) and not once.exists()
    ):
        once.write_text(str(os.getpid()))
        time.sleep(600)


def _misbehaviour_step(kind: str, folder: Path) -> int:
    """The step at which this misbehaviour is asked for; 0 for none."""
    file = folder.parent / "misbehave"
    words = dict(word.split("=") for word in file.read_text().split()) if file.exists() else {}
    return int(words.get(kind, 0))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main(sys.argv[1].removeprefix("config="), *sys.argv[2:])
