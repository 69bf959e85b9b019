"""Writes a checkpoint of two ranks as EasyR1's FSDP does: `python easyr1_shards.py MODEL ACTOR`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
from transformers import AutoModelForCausalLM

RANKS = 2


def save_shard(rank: int, model: Path, actor: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{actor}/rendezvous", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("fsdp",))
    weights = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).state_dict()
    shards = {name: distribute_tensor(tensor, mesh, [Shard(0)]) for name, tensor in weights.items()}
    torch.save(shards, actor / f"model_world_size_{RANKS}_rank_{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    (target / "huggingface").mkdir(parents=True)
    for name in ("config.json", "generation_config.json"):
        shutil.copy(source / name, target / "huggingface" / name)
    mp.spawn(save_shard, (source, target), nprocs=RANKS)
