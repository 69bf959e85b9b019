"""Two ways to save memory in a forward pass: checkpointing the activations, and attention in linear memory.

Both work with any Hugging Face decoder. They change neither its parameters nor the checkpoints that are saved.
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
from transformers.modeling_layers import GradientCheckpointingLayer  # the base class of every decoder layer

ATTENTION = "coevo_float32"


def checkpoint_layers(model: Any) -> None:
    """Keep only each layer's input in the forward pass, and compute the layer again for the gradients.

    This does not use transformers' `gradient_checkpointing`. That works in train mode only, where dropout is active
    too, and it disables the cache for sampling in that mode.

    The wrapper is around the layer's forward method and not around the call of the module. The hooks of a sharded layer
    then gather its parameters before the forward pass is repeated, too. The state of the random generators need not be
    restored, because no layer draws random numbers.
    """
    for layer in layers_of(model):
        layer.forward = partial(_checkpointed, layer.forward)


def layers_of(model: Any) -> list[Any]:
    """The decoder layers of `model`."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def _checkpointed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


def save_attention_memory(model: Any) -> None:
    """Make the memory of float32 attention on a GPU grow with the length of a sequence, not with its square.

    In models with fewer key heads than query heads, transformers leaves it to torch to match them. Torch's only CUDA
    kernel that does so in float32 stores a score for each pair of tokens (pytorch issue 154363). For repeated keys, its
    memory-efficient kernel is used. This follows from torch's source code and has not been tried on a GPU.

    On a CPU this changes nothing, because it would change the order of the sums.
    """
    if model.device.type != "cpu":
        model.set_attn_implementation(ATTENTION)


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attention as transformers' `sdpa` computes it, but with repeated keys and values when there is no mask.

    With a mask, `sdpa` repeats them itself. The tensors are (batch, heads, tokens, size).
    """
    (batch, heads, tokens, size), key_heads = query.shape, key.shape[1]
    if attention_mask is not None or heads == key_heads:
        output: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return output
    attend = partial(scaled_dot_product_attention, dropout_p=kwargs.get("dropout", 0.0), scale=kwargs.get("scaling"))
    if tokens == 1:
        # Treat the query heads of one key head as if they were tokens, so that a long cache need not be repeated.
        attended = attend(query.reshape(batch, key_heads, heads // key_heads, size), key, value)
    else:
        attended = attend(query, *(repeat_kv(states, heads // key_heads) for states in (key, value)), is_causal=True)
    return attended.reshape(batch, heads, tokens, size).transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
