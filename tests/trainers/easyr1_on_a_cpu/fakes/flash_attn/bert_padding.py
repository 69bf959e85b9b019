"""flash-attn's padding functions in plain torch, as EasyR1 calls them."""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor

__all__ = ["index_first_axis", "pad_input", "rearrange", "unpad_input"]


def index_first_axis(values: Tensor, indices: Tensor) -> Tensor:
    return values[indices]


def unpad_input(hidden_states: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """From (batch, seqlen, …): (tokens, …), the tokens' indices, cumulated lengths, the longest length, the lengths."""
    lengths = attention_mask.sum(-1, dtype=torch.int32)
    indices = attention_mask.flatten().nonzero().flatten()
    cumulated = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return hidden_states.flatten(0, 1)[indices], indices, cumulated, int(lengths.max()), lengths


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    padded = hidden_states.new_zeros(batch * seqlen, *hidden_states.shape[1:])
    return padded.index_copy(0, indices, hidden_states).unflatten(0, (batch, seqlen))
