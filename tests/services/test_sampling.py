from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from services.inference.engines.sampling import Draw, Uniforms, draw

LOGITS = torch.tensor([[0.5, 0.2, 0.2, 0.1]]).log()


def sample(
    uniform: float, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0, logits: Tensor = LOGITS
) -> Draw:
    numbers = [torch.tensor([number]) for number in (uniform, temperature, top_p, top_k)]
    return draw(logits, *numbers)


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        # The cumulated probabilities are 0.5, 0.7, 0.9, 1.0.
        ({}, {0.0: 0, 0.49: 0, 0.51: 1, 0.69: 1, 0.71: 2, 0.95: 3}),
        ({"temperature": 0.0}, {0.0: 0, 0.5: 0, 0.999: 0}),
        # top_p 0.6 keeps the smallest set with this probability: {0, 1}, with 0.5 and 0.2, so token 1 begins at 5/7.
        ({"top_p": 0.6}, {0.0: 0, 0.71: 0, 0.72: 1, 0.999: 1}),
        ({"top_p": 0.1}, {0.999: 0}),  # the set is never empty
        # top_k 3 keeps 0.5, 0.2 and 0.2, which are 5/9, 2/9 and 2/9 of their sum: tokens 1 and 2 begin at 5/9 and 7/9.
        ({"top_k": 3}, {0.0: 0, 0.55: 0, 0.56: 1, 0.77: 1, 0.78: 2, 0.999: 2}),
        ({"top_k": 1}, {0.0: 0, 0.999: 0}),
        ({"top_k": 9}, {0.49: 0, 0.69: 1, 0.89: 2, 0.999: 3}),  # more than there are
        # Of three tokens, 0.5 / 0.9 = 0.56 does not reach 0.7 and 0.7 / 0.9 = 0.78 does: {0, 1}, so token 1 begins at
        # 5/7. Without top_k, 0.7 of all would be the same two; of the two likeliest, 0.5 / 0.7 = 0.71 reaches it.
        ({"top_p": 0.7, "top_k": 3}, {0.71: 0, 0.72: 1, 0.999: 1}),
        ({"top_p": 0.7, "top_k": 2}, {0.0: 0, 0.999: 0}),
    ],
)
def test_a_draw_inverts_the_cumulated_distribution_by_hand(settings: dict[str, Any], tokens: dict[float, int]) -> None:
    assert {uniform: int(sample(uniform, **settings).tokens[0]) for uniform in tokens} == tokens


@pytest.mark.parametrize("settings", [{"top_p": 0.5}, {"top_k": 1}])
def test_logprob_and_entropy_are_those_of_the_distribution_before_top_k_and_top_p(settings: dict[str, Any]) -> None:
    sampled = sample(0.0, **settings)
    assert math.isclose(sampled.logprobs[0], math.log(0.5), rel_tol=1e-6)
    expected = -(0.5 * math.log(0.5) + 0.4 * math.log(0.2) + 0.1 * math.log(0.1))
    assert math.isclose(sampled.entropies[0], expected, rel_tol=1e-6)


def test_temperature_divides_the_logits() -> None:
    sampled = sample(0.0, temperature=2.0, logits=torch.tensor([[2.0, 0.0]]))
    assert math.isclose(sampled.logprobs[0], math.log(1 / (1 + math.exp(-1))), rel_tol=1e-6)


def test_forbidden_tokens_have_no_part_in_the_entropy() -> None:
    sampled = sample(0.9, logits=torch.tensor([[0.0, -math.inf]]))
    assert sampled.tokens[0] == 0
    assert sampled.entropies[0] == 0


def test_frequencies_follow_the_distribution() -> None:
    n = 4000
    uniforms = Uniforms(list(range(n))).at(0)
    tokens = draw(LOGITS.repeat(n, 1), uniforms, torch.ones(n), torch.ones(n), torch.zeros(n)).tokens
    counts = torch.bincount(tokens, minlength=4) / n
    # Four standard errors of a share at n = 4000 are at most 0.032.
    assert torch.allclose(counts, LOGITS.exp()[0], atol=0.032)


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**31),
    top_p=st.floats(0.05, 1.0),
    top_k=st.sampled_from([0, 1, 40, 64, 65, 150, 200, 1000]),
    scale=st.sampled_from([0.01, 0.3, 3.0]),  # 0.01: logits so flat that the top-k tokens do not have the nucleus
)
def test_every_draw_is_in_its_nucleus(seed: int, top_p: float, top_k: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(20, 200, generator=generator) * scale
    uniforms = torch.rand(20, generator=generator)
    drawn = draw(logits, uniforms, torch.ones(20), torch.full((20,), top_p), torch.full((20,), top_k)).tokens
    p, order = logits.softmax(-1).sort(-1, descending=True)
    p = p[:, : top_k or 200] / p[:, : top_k or 200].sum(-1, keepdim=True)
    order = order[:, : top_k or 200]
    assert (order == drawn[:, None]).any(-1).all()
    before = p.cumsum(-1) - p
    rank = (order == drawn[:, None]).int().argmax(-1)
    assert (before.gather(-1, rank[:, None])[:, 0] < top_p + 1e-5).all()


def test_a_row_s_uniforms_do_not_depend_on_the_other_rows() -> None:
    together = Uniforms([1, 2, 3])
    together.at(0)
    together.keep(torch.tensor([2]))
    alone = Uniforms([3])
    for step in range(130):  # over several blocks
        if step:
            assert torch.equal(together.at(step), alone.at(step))
        else:
            alone.at(0)
