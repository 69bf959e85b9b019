"""Entropy from the most likely tokens, against the exact one and against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from services.inference.entropy import entropy_bounds, mean_entropy


def listed(logits: NDArray[np.float64], sampled: int, count: int) -> tuple[list[float], float]:
    """Log-probabilities as vLLM lists them, and the exact entropy."""
    logp = logits - np.logaddexp.reduce(logits)
    order = [sampled, *(token for token in np.argsort(-logp, kind="stable") if token != sampled)]
    return [float(logp[token]) for token in order[:count]], float(-(np.exp(logp) * logp).sum())


@settings(deadline=None, max_examples=300)
@given(
    logits=st.lists(st.floats(-30, 30), min_size=2, max_size=40),
    sampled=st.integers(0, 39),
    count=st.integers(1, 10),
    padding=st.integers(0, 100),
)
def test_the_exact_entropy_is_within_the_bounds(logits: list[float], sampled: int, count: int, padding: int) -> None:
    known, exact = listed(np.array(logits), sampled % len(logits), min(count, len(logits)))
    low, high = entropy_bounds([known], len(logits) + padding)
    assert low[0] - 1e-9 <= exact <= high[0] + 1e-9
    estimate, error = mean_entropy([known], len(logits) + padding)
    assert abs(estimate - exact) <= error + 1e-9


def test_the_bounds_by_hand() -> None:
    # 1/2 and 1/4 of four tokens are known, the first one sampled: 1/4 is left, on one token or on both others
    known = math.log(2) / 2 + math.log(4) / 4
    low, high = entropy_bounds([[math.log(0.5), math.log(0.25)]], 4)
    assert low[0] == pytest.approx(known + math.log(4) / 4)
    assert high[0] == pytest.approx(known + math.log(8) / 4)


def test_an_unlikely_sample_does_not_bound_the_others() -> None:
    # the sampled token has 0.01, the likeliest 0.5: the next may have up to 0.49
    low, _ = entropy_bounds([[math.log(0.01), math.log(0.5)]], 100)
    assert low[0] == pytest.approx(-0.01 * math.log(0.01) - 0.5 * math.log(0.5) - 0.49 * math.log(0.49))


def test_a_whole_vocabulary_is_exact() -> None:
    known, exact = listed(np.array([1.0, 0.5, -2.0]), 1, 3)
    estimate, error = mean_entropy([known, known], 3)
    assert estimate == pytest.approx(exact)
    assert error == pytest.approx(0, abs=1e-12)
