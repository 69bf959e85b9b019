"""What a job leaves on disk while it runs, so that a killed one resumes: safetensors and JSON, never pickle.

    work_dir/step_K/   the model, its tokenizer, optimizer.safetensors, state.json; the newest two
    work_dir/final/    the model and its tokenizer

A folder appears by one rename, when all its files are on the disk: whoever sees it sees it whole. No random state is
kept, because nothing draws from a global generator: every seed derives from the job's key and the step. For the same
reason a writer that outlives its driver can do no harm: the folder that it writes has the same weights.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from trainers.folders import appearing, remove
from trainers.local.sharding import gathered, is_sharded, share_like
from trainers.local.state import STATE, State, final_folder, step_folders

_KEPT = 2
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
    """Write step_K, where K is `state.step`, and remove all but the newest two.

    Every worker calls it, and one `writes`: a sharded model is gathered from all of them. What is written does not
    show how it was spread.
    """
    weights, moments = _weights(model, writes), gathered(_tensors(optimiser), writes)
    if not writes:
        return
    with appearing(work_dir / f"step_{state.step}") as folder:
        model.save_pretrained(folder, state_dict=weights)
        tokenizer.save_pretrained(folder)
        save_file(moments, folder / _OPTIMISER)
        (folder / STATE).write_text(json.dumps(asdict(state)), encoding="utf-8")
    for old in step_folders(work_dir)[:-_KEPT]:
        remove(old)


def load_optimiser(folder: Path, optimiser: torch.optim.Optimizer) -> None:
    """Give `optimiser` the moments that `save_step` wrote into `folder`; of sharded ones, this worker's share."""
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    moments: dict[int, dict[str, torch.Tensor]] = {}
    with safe_open(folder / _OPTIMISER, framework="pt") as file:
        for name in file.offset_keys():  # one at a time: no worker need hold all of them
            index, kind = name.split(".")
            share = share_like(file.get_tensor(name), parameters[int(index)])
            moments.setdefault(int(index), {})[kind] = share
    optimiser.load_state_dict({**optimiser.state_dict(), "state": moments})


def save_final(work_dir: Path, step: int) -> None:
    """Copy the last step's model and tokenizer, without what only training needs."""
    with appearing(final_folder(work_dir)) as folder:
        for file in (work_dir / f"step_{step}").iterdir():
            if file.name not in (_OPTIMISER, STATE):
                shutil.copyfile(file, folder / file.name)


def _tensors(optimiser: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimiser's moments as "<index of the parameter>.<name of the moment>"."""
    state = optimiser.state_dict()["state"]
    return {f"{index}.{kind}": tensor for index, moments in state.items() for kind, tensor in moments.items()}


def _weights(model: Any, keep: bool) -> dict[str, torch.Tensor] | None:
    """A sharded model's weights, whole, for the worker that is to `keep` them; None where the model itself has them."""
    if not is_sharded(model):
        return None
    named = model.state_dict(keep_vars=True)  # as parameters, of which tied weights are one
    whole = gathered({id(tensor): tensor for tensor in named.values()}, keep)
    return {name: whole[id(tensor)] for name, tensor in named.items()} if keep else None
