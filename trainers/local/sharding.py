"""A model shared out over a job's workers by PyTorch's FSDP2 (`fully_shard`): each layer, and the rest together.

What is sharded: the policy's parameters, gradients and AdamW's two moments, and the reference's parameters, all in
float32, each tensor by its first dimension. Every worker computes on whole parameters: a layer at a time in forward and
backward, all of them while it samples and while a job loads a model. With `P` parameters, `N` workers, `E` of the
parameters outside the layers (embedding, head, last norm) and `L` in one layer, a worker holds, in bytes:

    between steps   16 P/N                            policy 4, moments 8, reference 4; without sharding 16 P
    while sampling  16 P/N + 4 P + 4 max(E, L)        and the KV cache; without sharding 16 P
    while updating  20 P/N + 8 E + 20 L at the most   and one micro batch's activations and logits; without, 20 P

8 E + 20 L: the gathered rest and its gradients; a layer gathered, its gradients, the next one gathered ahead with the
buffer that it came in, and what the gradients are sent from. Measured on a CPU, the peaks of two workers were 12.7
(sampling) and 12.2 (updating) bytes a parameter, where a single one had 16.4 and 21.1 (P = 110 million, E = 0.056 P,
L = 0.079 P, a micro batch of two rows of four tokens). So sampling sets the bound: more than 4 P, however many share. A
checkpoint is gathered a tensor at a time into the memory of the first worker's host: 12 P bytes.

Ranks decode for different numbers of steps, so nothing may be gathered while they sample: `whole` does it before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MethodType
from typing import Any, TypeVar

from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from trainers.local.activations import layers_of
from trainers.local.grpo import token_logprobs

K = TypeVar("K")


def shard(model: Any, workers: int) -> None:
    """Leave each of the `workers`, all of which call this, its share of a Hugging Face causal model.

    From then on they must compute in step: `logprobs_of` as often as the others, and backward after the same ones.
    """
    mesh = init_device_mesh(model.device.type, (workers,))
    for layer in layers_of(model):
        fully_shard(layer, mesh=mesh)
    # All the rest in one: a head that is tied to the embedding is one parameter with it.
    fully_shard(model, mesh=mesh, reshard_after_forward=True)
    model.token_logprobs = MethodType(token_logprobs, model)
    register_fsdp_forward_method(model, "token_logprobs")
    for part in _parts(model):
        part.set_force_sum_reduction_for_comms(True)  # gloo has no average
        part.set_gradient_divide_factor(1.0)  # rows have their share of the mean in their weights


def is_sharded(model: Any) -> bool:
    return isinstance(model, FSDPModule)


def logprobs_of(
    model: Any, ids: Tensor, mask: Tensor, temperature: float, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """`token_logprobs`, for which a sharded model's parameters are gathered as for a forward pass."""
    ask = model.token_logprobs if is_sharded(model) else partial(token_logprobs, model)
    answer: tuple[Tensor, Tensor] = ask(ids, mask, temperature, entropy_gradient=entropy_gradient)
    return answer


@contextmanager
def whole(model: Any) -> Iterator[None]:
    """Within it every worker has all parameters, and forward passes are its own affair."""
    parts = _parts(model)
    for part in parts:
        part.unshard()
        part.set_reshard_after_forward(False, recurse=False)
    try:
        yield
    finally:
        for part in parts:
            part.set_reshard_after_forward(True, recurse=False)
            part.reshard()


def gathered(tensors: Mapping[K, Tensor], keep: bool) -> dict[K, Tensor]:
    """The whole of `tensors` on the CPU, or nothing, having helped the worker that keeps them. All workers call it."""
    whole: dict[K, Tensor] = {}
    for name, tensor in tensors.items():
        complete = full(tensor)
        if keep:
            whole[name] = complete.cpu()
    return whole


def full(tensor: Tensor) -> Tensor:
    """The whole of a tensor, on every worker."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def share_like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """This worker's share of a whole `tensor`, as it has one of `parameter`; scalars are everybody's."""
    if not isinstance(parameter, DTensor) or tensor.shape != parameter.shape:
        return tensor
    return distribute_tensor(tensor, parameter.device_mesh, parameter.placements, src_data_rank=None)


def _parts(model: Any) -> list[FSDPModule]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]
