"""Saves a job's progress while it runs, so that it can resume after a kill. Safetensors and JSON, never pickle.

    work_dir/step_K/      the model, its tokenizer, optimizer.safetensors, state.json; the caller removes older ones
    work_dir/optimiser/   optimizer.safetensors of the last step, if the job is one round of a training
    work_dir/final/       the model and its tokenizer

With LoRA a step has adapter/ in place of the model, and the final folder has it beside the model.

A folder appears by one rename after all its files are on the disk, so a folder that exists is complete. No state of a
random generator is saved, because nothing draws from a global generator: every seed derives from the job's key and the
step. For the same reason a worker that outlives its driver does no harm: the folder that it writes has the same
weights.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from trainers.folders import appearing
from trainers.local.lora import ADAPTER, has_adapters, merged_state, save_adapters
from trainers.local.sharding import gathered, is_sharded, share_like
from trainers.local.state import STATE, State, final_folder, optimiser_folder

_OPTIMISER = "optimizer.safetensors"


def save_step(
    work_dir: Path,
    state: State,
    model: Any,
    tokenizer: Any,
    optimiser: torch.optim.Optimizer,
    *,
    writes: bool = True,
) -> None:
    """Write the folder step_K, where K is `state.step`.

    Every worker must call this, because a sharded model is gathered from all of them; only the worker with `writes`
    writes. The folder does not depend on how the model was sharded.
    """
    weights = complete_weights(model, writes) if is_sharded(model) else None  # else it has its complete weights itself
    by_parameter = optimiser.state_dict()["state"].items()  # the index of a parameter, and its moments by name
    moments = gathered({f"{i}.{kind}": tensor for i, kinds in by_parameter for kind, tensor in kinds.items()}, writes)
    if not writes:
        return
    with appearing(work_dir / f"step_{state.step}") as folder:
        if has_adapters(model):
            save_adapters(model, folder / ADAPTER)
        else:
            model.save_pretrained(folder, state_dict=weights)
        tokenizer.save_pretrained(folder)
        save_file(moments, folder / _OPTIMISER)
        (folder / STATE).write_text(json.dumps(asdict(state)), encoding="utf-8")


def complete_weights(model: Any, keep: bool, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor] | None:
    """The model's complete tensors by name, on the CPU, on the worker with `keep`; None on the others. With `dtype`,
    they have this type.

    Every worker must call this. Tied weights are one tensor under two names; adapters are merged.
    """
    if has_adapters(model) and not keep:
        return None  # a model with adapters is not sharded
    # The parameters themselves, so that tied weights have one id.
    named = merged_state(model, dtype) if has_adapters(model) else model.state_dict(keep_vars=True)
    complete = gathered({id(tensor): tensor.detach() for tensor in named.values()}, keep, dtype)
    return {name: complete[id(tensor)] for name, tensor in named.items()} if keep else None


def load_optimiser(folder: Path, optimiser: torch.optim.Optimizer) -> None:
    """Load the moments in `folder`, which `save_step` wrote; for sharded parameters, only this worker's share."""
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    moments: dict[int, dict[str, torch.Tensor]] = {}
    with safe_open(folder / _OPTIMISER, framework="pt") as file:
        for name in file.offset_keys():  # one tensor at a time, so that no worker holds all of them
            index, kind = name.split(".")
            share = share_like(file.get_tensor(name), parameters[int(index)])
            moments.setdefault(int(index), {})[kind] = share
    optimiser.load_state_dict({**optimiser.state_dict(), "state": moments})


def save_final(work_dir: Path, step: int, model: Any, *, with_optimiser: bool = False) -> None:
    """Copy the model and tokenizer of step `step` to the final folder, without the files that only training needs.

    The step's files lack the weights of a `model` with adapters, which are written here with the adapters merged. With
    `with_optimiser`, the optimiser's moments are in a folder of their own, which is there before the final one.
    """
    last = work_dir / f"step_{step}"
    if with_optimiser:
        with appearing(optimiser_folder(work_dir)) as folder:
            os.link(last / _OPTIMISER, folder / _OPTIMISER)  # a large file that no one changes
    with appearing(final_folder(work_dir)) as folder:
        if has_adapters(model):
            model.save_pretrained(folder, state_dict=complete_weights(model, True))
            shutil.copytree(last / ADAPTER, folder / ADAPTER)
        for file in last.iterdir():
            if file.is_file() and file.name not in (_OPTIMISER, STATE):
                shutil.copyfile(file, folder / file.name)
