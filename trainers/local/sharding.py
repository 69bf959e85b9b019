"""Shards a model over a job's workers with PyTorch's FSDP2 (`fully_shard`): each layer by itself, the rest as one unit.

These tensors are sharded, all in float32 and each along its first dimension: the policy's parameters, gradients and
AdamW's two moments, and the reference's parameters. Workers compute with complete parameters: one layer at a time in
forward and backward passes, and all layers while they sample and while a job loads a model. Let `P` be the number of
parameters, `N` of workers, `E` of the parameters outside the layers (embedding, head, last norm), and `L` of those in
one layer. Then a worker holds, in bytes:

    between steps   16 P/N                            policy 4, moments 8, reference 4; without sharding 16 P
    while sampling  16 P/N + 4 P + 4 max(E, L)        plus the KV cache; without sharding 16 P
    while updating  20 P/N + 8 E + 20 L at most       plus one micro batch's activations and logits; without, 20 P

The term 8 E + 20 L has these parts: the gathered parameters outside the layers and their gradients; a gathered layer
and its gradients; the next layer, gathered in advance, and the buffer that it arrived in; and the buffer that gradients
are sent from. Measured on a CPU, the peaks of two workers were 12.7 (sampling) and 12.2 (updating) bytes per parameter,
and those of a single worker 16.4 and 21.1 (P = 110 million, E = 0.056 P, L = 0.079 P, a micro batch of two rows of four
tokens). So sampling sets the lower bound: more than 4 P, with any number of workers. To save a checkpoint, its tensors
are gathered one at a time into the memory of the first worker's host: 12 P bytes.

Ranks decode for different numbers of steps, so no parameter may be gathered while they sample. `unsharded` gathers all
of them before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MethodType
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from trainers.local.activations import layers_of
from trainers.local.grpo import token_logprobs

K = TypeVar("K")


def shard(model: Any, workers: int) -> None:
    """Shard a Hugging Face causal model over `workers` workers, all of which must call this.

    From then on the workers must compute in step: all must call `logprobs_of` equally often, and run the backward pass
    after the same calls.
    """
    mesh = init_device_mesh(model.device.type, (workers,))
    for layer in layers_of(model):
        fully_shard(layer, mesh=mesh)
    # Everything else is one unit, because a head that is tied to the embedding is the same parameter.
    fully_shard(model, mesh=mesh, reshard_after_forward=True)
    model.token_logprobs = MethodType(token_logprobs, model)
    register_fsdp_forward_method(model, "token_logprobs")
    for module in _sharded_modules(model):
        module.set_force_sum_reduction_for_comms(True)  # gloo cannot average
        module.set_gradient_divide_factor(1.0)  # the weights of the micro batches already make the sum a mean


def is_sharded(model: Any) -> bool:
    return isinstance(model, FSDPModule)


def logprobs_of(
    model: Any, ids: Tensor, mask: Tensor, temperature: float, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Call `token_logprobs`; the parameters of a sharded model are gathered for it as for a forward pass."""
    compute = model.token_logprobs if is_sharded(model) else partial(token_logprobs, model)
    result: tuple[Tensor, Tensor] = compute(ids, mask, temperature, entropy_gradient=entropy_gradient)
    return result


@contextmanager
def unsharded(model: Any) -> Iterator[None]:
    """Give every worker all parameters for the block, so that forward passes need no other worker.

    Models that are not sharded stay as they are.
    """
    modules = _sharded_modules(model)
    for module in modules:
        module.unshard()
        module.set_reshard_after_forward(False, recurse=False)
    try:
        yield
    finally:
        for module in modules:
            module.set_reshard_after_forward(True, recurse=False)
            module.reshard()


def gathered(tensors: Mapping[K, Tensor], keep: bool, dtype: torch.dtype | None = None) -> dict[K, Tensor]:
    """The complete `tensors` on the CPU, on the worker with `keep`; an empty dictionary on the others. With `dtype`,
    numbers with a fraction have this type.

    All workers must call this, because each contributes its shares.
    """
    kept: dict[K, Tensor] = {}
    for name, tensor in tensors.items():
        complete = full(tensor.to(dtype) if dtype and tensor.is_floating_point() else tensor)
        if keep:
            kept[name] = complete.cpu()
    return kept


def full(tensor: Tensor) -> Tensor:
    """The complete tensor, on every worker; all must call this if it is sharded."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def share_like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """This worker's share of a complete `tensor`, sharded in the same way as `parameter`.

    A tensor of another shape, such as AdamW's step count, is not sharded and is returned as it is.
    """
    if not isinstance(parameter, DTensor) or tensor.shape != parameter.shape:
        return tensor
    return distribute_tensor(tensor, parameter.device_mesh, parameter.placements, src_data_rank=None)


def _sharded_modules(model: Any) -> list[FSDPModule]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]
