"""The entropy estimated from the most likely tokens, compared with the exact one and with values by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from services.inference.vllm.entropy import entropy_bounds, mean_entropy, sampled_first


def list_logprobs(logits: NDArray[np.float64], sampled: int, count: int) -> tuple[list[float], float]:
    """Log-probabilities as vLLM lists them, and the exact entropy."""
    logp = logits - np.logaddexp.reduce(logits)
    order = [sampled, *(token for token in np.argsort(-logp, kind="stable") if token != sampled)]
    return [float(logp[token]) for token in order[:count]], float(-(np.exp(logp) * logp).sum())


@settings(max_examples=300)
@given(
    logits=st.lists(st.floats(-30, 30), min_size=2, max_size=40),
    sampled=st.integers(0, 39),
    count=st.integers(1, 10),
    padding=st.integers(0, 100),
)
def test_the_exact_entropy_is_within_the_bounds(logits: list[float], sampled: int, count: int, padding: int) -> None:
    known, exact = list_logprobs(np.array(logits), sampled % len(logits), min(count, len(logits)))
    low, high = entropy_bounds([known], len(logits) + padding)
    assert low[0] - 1e-9 <= exact <= high[0] + 1e-9
    estimate, error = mean_entropy([known], len(logits) + padding)
    assert abs(estimate - exact) <= error + 1e-9


def test_the_bounds_by_hand() -> None:
    # The probabilities 1/2 and 1/4 of two of four tokens are known; 1/4 is left, for one of the others or for both.
    known = math.log(2) / 2 + math.log(4) / 4
    low, high = entropy_bounds([[math.log(0.5), math.log(0.25)]], 4)
    assert low[0] == pytest.approx(known + math.log(4) / 4)
    assert high[0] == pytest.approx(known + math.log(8) / 4)


def test_an_unlikely_sample_does_not_bound_the_others() -> None:
    # The sampled token has 0.01 and the likeliest 0.5: the next may have up to 0.49.
    low, _ = entropy_bounds([[math.log(0.01), math.log(0.5)]], 100)
    assert low[0] == pytest.approx(-0.01 * math.log(0.01) - 0.5 * math.log(0.5) - 0.49 * math.log(0.49))


def test_the_entropy_is_exact_where_all_tokens_are_listed() -> None:
    known, exact = list_logprobs(np.array([1.0, 0.5, -2.0]), 1, 3)
    estimate, error = mean_entropy([known, known], 3)
    assert estimate == pytest.approx(exact)
    assert error == pytest.approx(0, abs=1e-12)


def test_the_sampled_token_comes_first_and_once() -> None:
    """Three positions with the two most likely of ten tokens: the sampled token is the likeliest at the first position,
    the second at the next, and neither at the last."""
    ids = [7, 7, 4, 4, 7, 4, 1, 7, 4]
    logprobs = [-0.1, -0.1, -2.5, -2.5, -0.1, -2.5, -6.0, -0.1, -2.5]
    assert sampled_first(ids, logprobs, 2).tolist() == [[-0.1, -2.5], [-2.5, -0.1], [-6.0, -0.1]]
    assert sampled_first([7, 7, 1, 7], [-0.1, -0.1, -6.0, -0.1], 1).tolist() == [[-0.1], [-6.0]]


@given(logits=st.lists(st.floats(-30, 30), min_size=2, max_size=40, unique=True), data=st.data())
def test_the_tokens_that_vllm_lists_become_the_sampled_one_and_the_most_likely(
    logits: list[float], data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, len(logits)))
    sampled = data.draw(st.integers(0, len(logits) - 1))
    known, _ = list_logprobs(np.array(logits), sampled, count)
    logp = np.array(logits) - np.logaddexp.reduce(np.array(logits))
    ids = [sampled, *np.argsort(-logp, kind="stable")[:count]]
    assert sampled_first([int(i) for i in ids], [float(logp[i]) for i in ids], count).tolist() == [known]
