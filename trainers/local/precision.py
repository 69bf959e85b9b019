"""Computes a model's layers in bfloat16, while its weights, its logits and what is made of them stay in float32."""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from torch import Tensor

from trainers.local.grpo import decoder_of


def compute_in_bfloat16(model: Any) -> None:
    """From now on the layers of a Hugging Face causal model in float32 compute in bfloat16, by autocast.

    The output head computes in float32: its logits, up to 30, would be rounded by up to 0.06 in bfloat16, and so would
    be the log-probabilities. On a GPU the head's products have inputs of 10 bits (TF32), and sums in float32. Sampling
    and training both go through this, so that they compute the same policy. Weights in bfloat16 are not kept for the
    whole pass, since each is used once.
    """
    decoder, device = decoder_of(model), model.device.type
    forward = decoder.forward

    @wraps(forward)
    def in_bfloat16(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, torch.bfloat16, cache_enabled=False):
            return forward(*args, **kwargs)

    decoder.forward = in_bfloat16
    model.get_output_embeddings().register_forward_pre_hook(_in_float32)
    if device == "cuda":
        torch.backends.cuda.matmul.fp32_precision = "tf32"


def _in_float32(_head: Any, arguments: tuple[Tensor]) -> tuple[Tensor]:
    return (arguments[0].float(),)
