"""From the raw rewards of a group to advantages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

EPSILON = 1e-6


def advantages_zscore(rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Group-wise z-scores (G,) of the rewards (G,) of one prompt's rollouts: `(r - mean) / (std + 1e-6)`.

    R-Zero A.1. The paper leaves the standard deviation's kind and epsilon open; here they are the released code's
    (EasyR1): unbiased, over G - 1, and 1e-6. Equal rewards, one alone included, say nothing: exact zeros.

    Raises:
        ValueError: rewards are not one non-empty row of finite numbers.
    """
    if rewards.ndim != 1 or not rewards.size or not np.isfinite(rewards).all():
        raise ValueError(f"rewards: expected finite numbers of shape (G,), got {rewards!r}")
    if np.ptp(rewards) == 0:
        return np.zeros_like(rewards, dtype=np.float64)
    scores: NDArray[np.float64] = (rewards - rewards.mean()) / (rewards.std(ddof=1) + EPSILON)
    return scores
