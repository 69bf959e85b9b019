"""Next-token logits over a batch of rows with a key-value cache, by the model's own forward pass."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

# On a CPU a row's logits must not depend on what else is in the batch, to the last bit: sampling is a function of the
# row's own seed, and a resumed run must draw what an uninterrupted one would have drawn. Three things would break that.
# MKL picks a matrix product's kernel, and so its order of summation, by the number of rows, unless its strict mode of
# reproducibility is asked for, which it reads at its first product; even then, off Intel's processors, products of one
# to three rows sum in another order than larger ones, hence _MIN_ROWS. And attention over another number of keys does,
# hence every prompt is padded to a multiple of PROMPT_WIDTH on its left and only prompts of one width share a batch.
# Tests compare products, and rows alone and in company, bit by bit.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
_MIN_ROWS = 8
PROMPT_WIDTH = 32


def padded_width(prompt: list[int]) -> int:
    """The width that `prompt` is padded to: a matter of the prompt alone."""
    return -(-len(prompt) // PROMPT_WIDTH) * PROMPT_WIDTH


def can_join(model: Any) -> bool:
    """Whether two batches of `model` can be joined: its cache is nothing but keys and values."""
    return {type(layer) for layer in DynamicCache(config=model.config).layers} <= {
        DynamicLayer,
        DynamicSlidingWindowLayer,
    }


class Decoder:
    """The state of one batch, whose prompts have one padded width. Rows may share a prompt."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def prefill(self, prompts: list[list[int]], rows: Tensor) -> Tensor:
        """Read the prompts; give the logits (B, V) that follow the prompt of each row (B,)."""
        width = padded_width(prompts[0])
        prompts = prompts + prompts[:1] * (_MIN_ROWS - len(prompts))
        device = self._model.device
        pads = [width - len(prompt) for prompt in prompts]
        ids = torch.tensor([[0] * pad + p for pad, p in zip(pads, prompts, strict=True)], device=device)
        self._mask = (torch.arange(width) >= torch.tensor(pads)[:, None]).long().to(device)
        self._cache = DynamicCache(config=self._model.config)
        logits = self._forward(ids, (self._mask.cumsum(-1) - 1).clamp(min=0))
        self.keep(rows.to(device))
        return logits[rows.to(device)]

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token a row (B,); give the next logits (B, V)."""
        self._mask = functional.pad(self._mask, (0, 1), value=1)
        tokens = functional.pad(tokens, (0, len(self._mask) - len(tokens)))
        logits = self._forward(tokens[:, None], self._mask.sum(-1, keepdim=True) - 1)
        return logits[: self._rows]

    def keep(self, rows: Tensor) -> None:
        """Go on with `rows` only."""
        self._rows = len(rows)
        rows = functional.pad(rows, (0, max(0, _MIN_ROWS - len(rows))))
        self._cache.batch_select_indices(rows)
        self._mask = self._mask[rows]

    def join(self, other: Decoder) -> None:
        """Go on with the rows of `other` after these. Both have one width and as many tokens; see `can_join`.
        `other` cannot be used afterwards."""
        layers: Any = zip(self._cache.layers, other._cache.layers, strict=True)
        for layer, more in layers:
            layer.keys = torch.cat([layer.keys[: self._rows], more.keys[: other._rows]])
            layer.values = torch.cat([layer.values[: self._rows], more.values[: other._rows]])
            more.keys = more.values = None  # no more than one layer is in memory twice
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
