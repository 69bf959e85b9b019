"""From the raw rewards of a group to advantages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.methods import Objective, PolyEpo, SetMethod
from core.sets import pass_at_n_advantages, polychromic_advantages

EPSILON = 1e-6

Floats = NDArray[np.float64]


def advantages(rewards: Floats, method: Objective, clusters: Sequence[int] | None = None, seed: int = 0) -> Floats:
    """Advantages (G,) of the rewards (G,) of one prompt's rollouts, by the estimator that `method.advantage` names.

    "zscore": GRPO. "mean": `r - mean`, GRPO without std, as in Poly-EPO's baselines (A). "rloo": `r` less the mean of
    the others, `G/(G-1) (r - mean)` (SRT B.1). "set": the marginal set advantage (Poly-EPO eq. 8), for which
    `poly_epo` needs the strategies' `clusters` (G,), and `seed` draws the sets where not all are taken.

    All sum to zero, but sampled sets'. One rollout alone says nothing: 0.

    Raises:
        ValueError: rewards are not one non-empty row of finite numbers; a set's size does not fit; no clusters.
    """
    if rewards.ndim != 1 or not rewards.size or not np.isfinite(rewards).all():
        raise ValueError(f"rewards: expected finite numbers of shape (G,), got {rewards!r}")
    if isinstance(method, PolyEpo):
        if clusters is None:
            raise ValueError("clusters: poly_epo's advantages need them, got None")
        return polychromic_advantages(rewards, clusters, method.set_size, method.sets, seed)
    if isinstance(method, SetMethod):
        return pass_at_n_advantages(rewards, method.set_size, method.sets, seed)
    if method.advantage == "zscore":
        return advantages_zscore(rewards)
    scale = len(rewards) / max(1, len(rewards) - 1) if method.advantage == "rloo" else 1.0
    centred: Floats = scale * (rewards - rewards.mean()) if np.ptp(rewards) else np.zeros_like(rewards)
    return centred


def advantages_zscore(rewards: Floats) -> Floats:
    """Group-wise z-scores (G,): `(r - mean) / (std + 1e-6)`.

    R-Zero A.1. The paper leaves the standard deviation's kind and epsilon open; here they are the released code's
    (EasyR1): unbiased, over G - 1, and 1e-6. Equal rewards, one alone included, say nothing: exact zeros.
    """
    if np.ptp(rewards) == 0:
        return np.zeros_like(rewards, dtype=np.float64)
    scores: Floats = (rewards - rewards.mean()) / (rewards.std(ddof=1) + EPSILON)
    return scores
