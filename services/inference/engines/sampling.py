"""Drawing one token a row, so that a row's draw depends on that row alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_BLOCK = 64  # uniforms drawn at once for a row
_HEAD = 64  # most rows reach their top-p within so many tokens: a top-k is cheaper than a sort


class Uniforms:
    """One stream of uniforms in [0, 1) a row, from the row's own seed."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._streams = [np.random.Generator(np.random.Philox(key=seed)) for seed in seeds]
        self._block = torch.empty(0)

    def at(self, step: int) -> Tensor:
        """The uniforms of every row at `step` (B,); steps are asked for in order."""
        if step % _BLOCK == 0:
            draws = [stream.random(_BLOCK, dtype=np.float32) for stream in self._streams]
            self._block = torch.from_numpy(np.stack(draws))
        return self._block[:, step % _BLOCK]

    def keep(self, rows: Tensor) -> None:
        """Go on with `rows` only."""
        self._streams = [self._streams[i] for i in rows.tolist()]
        self._block = self._block[rows]

    def join(self, other: Uniforms) -> None:
        """Go on with the rows of `other` after these. Both were asked for the same steps."""
        self._streams += other._streams
        self._block = torch.cat([self._block, other._block])


@dataclass(frozen=True, slots=True)
class Draw:
    """One token a row: ids (B,), log-probabilities (B,) and entropies (B,) in nats, both before top-p."""

    tokens: Tensor
    logprobs: Tensor
    entropies: Tensor


def draw(logits: Tensor, uniforms: Tensor, temperature: Tensor, top_p: Tensor) -> Draw:
    """Sample from softmax(logits / temperature) cut to its nucleus. logits (B, V), the others (B,).

    Temperature 0 takes the most likely token; its log-probability and entropy are those at temperature 1.
    """
    greedy = temperature == 0
    logp = torch.log_softmax(logits / torch.where(greedy, 1.0, temperature)[:, None], -1)
    p = logp.exp()
    tokens = torch.where(greedy, logits.argmax(-1), _nucleus(p, uniforms, top_p))
    # p * logp is 0 * -inf for a forbidden token
    entropies = -torch.where(p > 0, p * logp, 0.0).sum(-1)
    return Draw(tokens, logp.gather(-1, tokens[:, None])[:, 0], entropies)


def _nucleus(p: Tensor, uniforms: Tensor, top_p: Tensor) -> Tensor:
    """Inverse-CDF sampling within the smallest set of likeliest tokens whose mass reaches top_p.

    How a row is drawn may depend on its own top_p only: ordered by id when nothing is cut, else by likelihood.
    """
    choice = _invert(p.cumsum(-1), uniforms)
    cut = (top_p < 1).nonzero()[:, 0]
    if len(cut):
        choice[cut] = _within_top(p[cut], uniforms[cut], top_p[cut])
    return choice


def _within_top(p: Tensor, uniforms: Tensor, top_p: Tensor) -> Tensor:
    values, ids = p.topk(min(_HEAD, p.shape[-1]), -1)
    choice = _invert_within(values, ids, uniforms, top_p)
    short = (values.sum(-1) < top_p).nonzero()[:, 0]
    if len(short):
        values, ids = p[short].sort(dim=-1, descending=True, stable=True)
        choice[short] = _invert_within(values, ids, uniforms[short], top_p[short])
    return choice


def _invert_within(values: Tensor, ids: Tensor, uniforms: Tensor, top_p: Tensor) -> Tensor:
    outside = values.cumsum(-1) - values >= top_p[:, None]
    outside[:, 0] = False
    inside = values.masked_fill(outside, 0.0)
    return ids.gather(-1, _invert(inside.cumsum(-1), uniforms)[:, None])[:, 0]


def _invert(mass: Tensor, uniforms: Tensor) -> Tensor:
    """The first index whose cumulated mass exceeds `uniforms` of the whole; never one of no mass."""
    return (mass <= (uniforms * mass[:, -1])[:, None]).sum(-1).clamp(max=mass.shape[-1] - 1)
