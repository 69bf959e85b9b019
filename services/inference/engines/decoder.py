"""Computes the next-token logits of a batch of rows, with the model's own forward pass and a key-value cache."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

# On a CPU, the logits of a row must not depend on the rest of the batch, not even in the last bit: sampling depends on
# the row's own seed only, and a resumed run must draw the same as an uninterrupted one. Three things would break that:
#
# - MKL chooses the kernel of a matrix product, and with it the order of summation, by the number of rows. Its strict
#   mode of reproducibility prevents that. MKL reads the setting at its first product.
# - Even in strict mode, on processors that are not Intel's, products of one to three rows sum in another order than
#   larger ones. So no product has fewer than _MIN_ROWS rows.
# - Attention over another number of keys sums in another order. So every prompt is padded on its left to a multiple of
#   PROMPT_WIDTH, and only prompts of the same padded width share a batch.
#
# Tests compare products, and rows alone and in a batch, bit by bit.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
_MIN_ROWS = 8
PROMPT_WIDTH = 32


def padded_width(prompt: list[int]) -> int:
    """The width that `prompt` is padded to, which depends on the prompt alone."""
    return -(-len(prompt) // PROMPT_WIDTH) * PROMPT_WIDTH


def can_join(model: Any) -> bool:
    """Whether two batches of `model` can be joined, which requires that its cache holds only keys and values."""
    return {type(layer) for layer in DynamicCache(config=model.config).layers} <= {
        DynamicLayer,
        DynamicSlidingWindowLayer,
    }


class Decoder:
    """The state of one batch, whose prompts have the same padded width. Rows may share a prompt."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def prefill(self, prompts: list[list[int]], rows: Tensor) -> Tensor:
        """Process the prompts. `rows` (B,) holds the index of each row's prompt; returns its next logits (B, V)."""
        width = padded_width(prompts[0])
        prompts = prompts + prompts[:1] * (_MIN_ROWS - len(prompts))
        device = self._model.device
        paddings = [width - len(prompt) for prompt in prompts]
        ids = torch.tensor(
            [[0] * padding + prompt for padding, prompt in zip(paddings, prompts, strict=True)], device=device
        )
        self._mask = (torch.arange(width) >= torch.tensor(paddings)[:, None]).long().to(device)
        self._cache = DynamicCache(config=self._model.config)
        logits = self._forward(ids, (self._mask.cumsum(-1) - 1).clamp(min=0))
        self.keep(rows.to(device))
        return logits[rows.to(device)]

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token to each row (B,), and return the next logits (B, V)."""
        self._mask = functional.pad(self._mask, (0, 1), value=1)
        tokens = functional.pad(tokens, (0, len(self._mask) - len(tokens)))
        logits = self._forward(tokens[:, None], self._mask.sum(-1, keepdim=True) - 1)
        return logits[: self._rows]

    def keep(self, rows: Tensor) -> None:
        """Keep the rows with the indices `rows`, and drop the others."""
        self._rows = len(rows)
        rows = functional.pad(rows, (0, max(0, _MIN_ROWS - len(rows))))
        self._cache.batch_select_indices(rows)
        self._mask = self._mask[rows]

    def join(self, other: Decoder) -> None:
        """Append the rows of `other`, which must have the same padded width and number of tokens; see `can_join`.

        `other` cannot be used afterwards.
        """
        layers: Any = zip(self._cache.layers, other._cache.layers, strict=True)
        for layer, other_layer in layers:
            layer.keys = torch.cat([layer.keys[: self._rows], other_layer.keys[: other._rows]])
            layer.values = torch.cat([layer.values[: self._rows], other_layer.values[: other._rows]])
            other_layer.keys = other_layer.values = None  # so that only one layer at a time is in memory twice
        self._mask = torch.cat([self._mask[: self._rows], other._mask[: other._rows]])
        self.keep(torch.arange(len(self._mask), device=self._mask.device))

    def _forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        output = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = output.logits[:, -1]
        return logits.float()
