"""What a worker keeps of a forward pass, and what it computes again: memory for time, with the same result.

Both act on the layers of any Hugging Face decoder, and touch neither parameters nor what is saved.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_layers import GradientCheckpointingLayer  # what every decoder layer is

ATTENTION = "coevo_float32"


def checkpoint_layers(model: Any) -> None:
    """Keep of each layer what enters it, and compute the rest again for the gradients.

    Not transformers' `gradient_checkpointing`, which acts in train mode only, where dropout does too, and which takes
    the cache from whoever samples in that mode. The forward method is wrapped, and not the call of the module, so that
    a sharded layer gathers its parameters before, by its hooks, for the second time too. Nothing is drawn in a layer.
    """
    for layer in layers_of(model):
        layer.forward = partial(_again, layer.forward)


def layers_of(model: Any) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def _again(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


def spare_attention(model: Any) -> None:
    """Have attention in float32 on a GPU take memory in proportion to a sequence's length, and not to its square.

    Where fewer heads have keys than queries, transformers asks torch to match them, and of torch's CUDA kernels for
    that none takes float32 but the plain one, which holds a score for each pair of tokens (pytorch issue 154363): 23 GB
    for a layer of Qwen3-4B and 13,312 tokens. With repeated keys the memory-efficient kernel takes it. That is by its
    sources, and was not tried on a GPU. On a CPU sums would change their order; there nothing is changed.
    """
    if model.device.type != "cpu":
        model.set_attn_implementation(ATTENTION)


def _sparing(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """transformers' `sdpa`, which does as much itself where there is a mask. (batch, heads, tokens, size)."""
    (batch, heads, tokens, size), with_keys = query.shape, key.shape[1]
    if attention_mask is not None or heads == with_keys:
        output: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return output
    attend = partial(scaled_dot_product_attention, dropout_p=kwargs.get("dropout", 0.0), scale=kwargs.get("scaling"))
    if tokens == 1:  # the heads of a key as if they were its tokens: a long cache need not be repeated
        attended = attend(query.reshape(batch, with_keys, heads // with_keys, size), key, value)
    else:
        attended = attend(query, *(repeat_kv(states, heads // with_keys) for states in (key, value)), is_causal=True)
    return attended.reshape(batch, heads, tokens, size).transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, _sparing)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
