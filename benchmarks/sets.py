"""Measures how long Poly-EPO's advantages take, from all sets in closed form and from K = 4,096 sampled sets."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import comb
from typing import Any

import numpy as np

from core.methods.poly_epo import polychromic_advantages

_ROUNDS = 25


def run() -> dict[str, Any]:
    """Milliseconds per prompt (medians over rounds), for N = 32 rollouts in sets of 8 and, in closed form, N = 64."""
    generator = np.random.default_rng(0)
    rewards, clusters = generator.integers(0, 2, 32).astype(float), tuple(generator.integers(1, 9, 32).tolist())
    rewards_64, clusters_64 = generator.integers(0, 2, 64).astype(float), tuple(generator.integers(1, 17, 64).tolist())
    exact = polychromic_advantages(rewards, clusters, 8)
    sampled = polychromic_advantages(rewards, clusters, 8, 4096, seed=1)
    return {
        "sets": comb(32, 8),
        "all_sets_ms": _median_ms(lambda: polychromic_advantages(rewards, clusters, 8)),
        "sampled_sets": 4096,
        "sampled_sets_ms": _median_ms(lambda: polychromic_advantages(rewards, clusters, 8, 4096, seed=1)),
        "sampled_against_all_max": float(np.abs(sampled - exact).max()),
        "all_sets_of_64_ms": _median_ms(lambda: polychromic_advantages(rewards_64, clusters_64, 8)),
    }


def _median_ms(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - start))
    return round(float(np.median(times)), 3)
