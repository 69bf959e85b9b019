"""Token entropy from the most likely tokens' log-probabilities, with a bound on what that can be wrong by.

vLLM tells at most the k most likely tokens at a price that can be paid: all of a vocabulary's slow the tiny model down
fiftyfold. What they leave open is how the rest of the mass, r, lies on the other V - k tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def entropy_bounds(logprobs: ArrayLike, vocabulary: int) -> tuple[Floats, Floats]:
    """The least and the greatest entropy (T,), in nats, that T tokens' distributions can have.

    logprobs (T, k) are of k tokens each, as vLLM lists them: first the sampled one, then the most likely others, k - 1
    of them at least. `vocabulary` is V. With the mass r left over, of which no token has more than m:
    H_k - r ln min(m, r) <= H <= H_k + r ln((V - k) / r), H_k being the k tokens' own share: the rest is at its most
    even at the right, and as uneven as m lets it be at the left.
    """
    known = np.asarray(logprobs, dtype=np.float64)
    p, count = np.exp(known), known.shape[1]
    own = -(p * np.where(p > 0, known, 0.0)).sum(-1)
    rest = np.clip(1.0 - p.sum(-1), 0.0, 1.0)
    # Of the others listed each is at least as likely as any that is not; the sampled one need not be.
    most = np.minimum(rest, p[:, 1:].min(-1) if count > 1 else 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where((rest > 0) & (most > 0), -rest * np.log(most), 0.0)
        high = np.where(rest > 0, rest * np.log(max(vocabulary - count, 1) / rest), 0.0)
    return own + low, own + np.maximum(low, high)


def sampled_first(token_ids: Sequence[int], logprobs: Sequence[float], top: int) -> Floats:
    """Log-probabilities (T, top) of T tokens: each the sampled one's, then those of the most likely others.

    vLLM lists top + 1 of a token, one token after the other: the sampled one, and the most likely, of which it may be
    one.
    """
    shape = (-1, top + 1)
    ids, known = np.array(token_ids).reshape(shape), np.array(logprobs, dtype=np.float64).reshape(shape)
    again = ids[:, 1:] == ids[:, :1]
    others = 1 + np.argsort(again, axis=1, kind="stable")[:, : top - 1]  # without it, or else without the least likely
    return np.concatenate([known[:, :1], np.take_along_axis(known, others, axis=1)], axis=1)


def mean_entropy(logprobs: ArrayLike, vocabulary: int) -> tuple[float, float]:
    """(estimate, error) in nats a token: the exact mean lies within estimate -+ error. Arguments as above, T >= 1."""
    low, high = entropy_bounds(logprobs, vocabulary)
    return float((low + high).mean() / 2), float((high - low).mean() / 2)
