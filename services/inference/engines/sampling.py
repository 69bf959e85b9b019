"""Draws one token per row of a batch. The draw of a row depends on this row alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_BLOCK = 64  # uniforms drawn at once for each row
_HEAD = 64  # in most rows, this many tokens reach the top-p mass; topk is cheaper than a sort


class Uniforms:
    """A stream of uniform random numbers in [0, 1) for each row, from the row's own seed."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._streams = [np.random.Generator(np.random.Philox(key=seed)) for seed in seeds]
        self._block = torch.empty(0)

    def at(self, step: int) -> Tensor:
        """The uniforms (B,) of all rows at `step`. Must be called for the steps in order."""
        if step % _BLOCK == 0:
            draws = [stream.random(_BLOCK, dtype=np.float32) for stream in self._streams]
            self._block = torch.from_numpy(np.stack(draws))
        return self._block[:, step % _BLOCK]

    def keep(self, rows: Tensor) -> None:
        """Keep `rows` and drop the others."""
        self._streams = [self._streams[i] for i in rows.tolist()]
        self._block = self._block[rows]

    def join(self, other: Uniforms) -> None:
        """Append the rows of `other`, which must be at the same step."""
        self._streams += other._streams
        self._block = torch.cat([self._block, other._block])


@dataclass(frozen=True, slots=True)
class Draw:
    """One token per row: ids (B,), and log-probabilities (B,) and entropies (B,) in nats, before mask, top-k, top-p."""

    tokens: Tensor
    logprobs: Tensor
    entropies: Tensor


def draw(
    logits: Tensor, uniforms: Tensor, temperature: Tensor, top_p: Tensor, top_k: Tensor, mask: Tensor | None = None
) -> Draw:
    """Sample from softmax(logits / temperature), restricted to the tokens where `mask` is True, then to top-k and then
    to top-p, which are shares of what the mask leaves. `logits` and `mask` are (B, V), the others (B,). `top_k` 0
    stands for all tokens.

    Temperature 0 takes the most likely token; its log-probability and entropy are those at temperature 1.
    """
    greedy = temperature == 0
    logits = logits / torch.where(greedy, 1.0, temperature)[:, None]
    logprobs = torch.log_softmax(logits, -1)
    probabilities = logprobs.exp()
    left, shares = logits, probabilities
    if mask is not None:
        # A softmax, because the probabilities of all that is left may be 0 in float32. The clamp is for logits of -inf.
        left = logits.clamp(min=torch.finfo(logits.dtype).min).masked_fill(~mask, -torch.inf)
        shares = torch.where(mask.all(-1, keepdim=True), probabilities, left.softmax(-1))
    tokens = torch.where(greedy, left.argmax(-1), _sample(shares, uniforms, top_p, top_k))
    # For a token of probability 0 the product would be 0 * -inf.
    entropies = -torch.where(probabilities > 0, probabilities * logprobs, 0.0).sum(-1)
    return Draw(tokens, logprobs.gather(-1, tokens[:, None])[:, 0], entropies)


def _sample(probabilities: Tensor, uniforms: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """Inverse-CDF sampling from the smallest set of most likely tokens whose mass reaches top_p.

    With top_k, the set is among the `top_k` most likely tokens, and top_p is a share of their mass, as in vLLM. The
    order of the tokens in the CDF depends only on the row's own settings: by id if top_p is 1 and there is no top_k,
    else by probability.
    """
    tokens = _invert_cdf(probabilities.cumsum(-1), uniforms)
    rows = ((top_p < 1) | (top_k > 0)).nonzero()[:, 0]
    if len(rows):
        values, ids = probabilities[rows].topk(min(_HEAD, probabilities.shape[-1]), -1)
        tokens[rows] = _sample_from(values, ids, uniforms[rows], top_p[rows], top_k[rows])
        # The most likely tokens may not be enough; then the set is among all of them.
        too_short = rows[torch.where(top_k[rows] > 0, top_k[rows] > _HEAD, values.sum(-1) < top_p[rows])]
        if len(too_short):
            values, ids = probabilities[too_short].sort(dim=-1, descending=True, stable=True)
            tokens[too_short] = _sample_from(values, ids, uniforms[too_short], top_p[too_short], top_k[too_short])
    return tokens


def _sample_from(values: Tensor, ids: Tensor, uniforms: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """Sample among the tokens `ids` with probabilities `values`, which are sorted in descending order."""
    ranks, limited = torch.arange(values.shape[-1], device=values.device), top_k > 0
    values = values.masked_fill(limited[:, None] & (ranks >= top_k[:, None]), 0.0)
    cumulated = values.cumsum(-1)
    outside = cumulated - values >= torch.where(limited, top_p * cumulated[:, -1], top_p)[:, None]
    outside[:, 0] = False
    inside = values.masked_fill(outside, 0.0)
    return ids.gather(-1, _invert_cdf(inside.cumsum(-1), uniforms)[:, None])[:, 0]


def _invert_cdf(cumulated: Tensor, uniforms: Tensor) -> Tensor:
    """The first index whose cumulated mass exceeds `uniforms` times the total; never an index without mass."""
    return (cumulated <= (uniforms * cumulated[:, -1])[:, None]).sum(-1).clamp(max=cumulated.shape[-1] - 1)
