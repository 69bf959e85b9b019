"""Estimates token entropy from the log-probabilities of the most likely tokens, with a bound on the error.

vLLM can report the log-probabilities of the k most likely tokens at an acceptable cost. Those of the whole vocabulary
would make the tiny model fifty times slower. What remains unknown is how the rest of the mass, r, is distributed over
the other V - k tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def entropy_bounds(logprobs: ArrayLike, vocabulary: int) -> tuple[Floats, Floats]:
    """The smallest and the largest possible entropy (T,), in nats, of the distributions at T positions.

    `logprobs` (T, k) holds the log-probabilities of k tokens at each position: first the sampled token, then the most
    likely others. `vocabulary` is V. Let H_k be the part of the entropy that the k tokens contribute, r the mass of the
    other tokens, and m an upper bound for the probability of each of them. Then

        H_k - r ln min(m, r) <= H <= H_k + r ln((V - k) / r).

    The lower bound distributes r as unevenly as m allows, and the upper bound distributes it evenly.
    """
    listed = np.asarray(logprobs, dtype=np.float64)
    probabilities, count = np.exp(listed), listed.shape[1]
    known = -(probabilities * np.where(probabilities > 0, listed, 0.0)).sum(-1)
    rest = np.clip(1.0 - probabilities.sum(-1), 0.0, 1.0)
    # Each listed token is at least as likely as any that is not listed, except perhaps the sampled one.
    largest = np.minimum(rest, probabilities[:, 1:].min(-1) if count > 1 else 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where((rest > 0) & (largest > 0), -rest * np.log(largest), 0.0)
        high = np.where(rest > 0, rest * np.log(max(vocabulary - count, 1) / rest), 0.0)
    return known + low, known + np.maximum(low, high)


def sampled_first(token_ids: Sequence[int], logprobs: Sequence[float], top: int) -> Floats:
    """Log-probabilities (T, top) at T positions: first the sampled token's, then those of the most likely others.

    The arguments are vLLM's flat lists, with top + 1 entries for each position: the sampled token, and then the `top`
    most likely tokens, which may include the sampled token.
    """
    shape = (-1, top + 1)
    ids, rows = np.array(token_ids).reshape(shape), np.array(logprobs, dtype=np.float64).reshape(shape)
    is_sampled = ids[:, 1:] == ids[:, :1]
    # Leave out the sampled token, or the least likely one if the sampled one is not among the most likely.
    others = 1 + np.argsort(is_sampled, axis=1, kind="stable")[:, : top - 1]
    return np.concatenate([rows[:, :1], np.take_along_axis(rows, others, axis=1)], axis=1)


def mean_entropy(logprobs: ArrayLike, vocabulary: int) -> tuple[float, float]:
    """(estimate, error) in nats per token: the exact mean lies within estimate -+ error.

    The arguments are those of `entropy_bounds`, for at least one position.
    """
    low, high = entropy_bounds(logprobs, vocabulary)
    return float((low + high).mean() / 2), float((high - low).mean() / 2)
