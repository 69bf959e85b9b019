from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from services.inference.engines.sampling import Uniforms, draw

LOGITS = torch.tensor([[0.5, 0.2, 0.2, 0.1]]).log()


def _draw(uniform: float, temperature: float = 1.0, top_p: float = 1.0, logits: torch.Tensor = LOGITS) -> int:
    sampled = draw(logits, torch.tensor([uniform]), torch.tensor([temperature]), torch.tensor([top_p]))
    return int(sampled.tokens[0])


def test_a_draw_inverts_the_cumulated_distribution_by_hand() -> None:
    # The cumulated probabilities are 0.5, 0.7, 0.9, 1.0.
    assert [_draw(u) for u in (0.0, 0.49, 0.51, 0.69, 0.71, 0.95)] == [0, 0, 1, 1, 2, 3]


def test_a_draw_is_from_the_nucleus_by_hand() -> None:
    # top_p 0.6 keeps the smallest set with this probability: {0, 1}, with 0.5 and 0.2, so token 1 begins at 5/7.
    assert [_draw(u, top_p=0.6) for u in (0.0, 0.71, 0.72, 0.999)] == [0, 0, 1, 1]
    assert _draw(0.999, top_p=0.1) == 0  # the set is never empty


def test_temperature_zero_always_takes_the_likeliest_token() -> None:
    assert {_draw(u, temperature=0.0) for u in (0.0, 0.5, 0.999)} == {0}


def test_logprob_and_entropy_are_those_of_the_distribution_before_top_p() -> None:
    sampled = draw(LOGITS, torch.tensor([0.0]), torch.tensor([1.0]), torch.tensor([0.5]))
    assert math.isclose(sampled.logprobs[0], math.log(0.5), rel_tol=1e-6)
    expected = -(0.5 * math.log(0.5) + 0.4 * math.log(0.2) + 0.1 * math.log(0.1))
    assert math.isclose(sampled.entropies[0], expected, rel_tol=1e-6)


def test_temperature_divides_the_logits() -> None:
    sampled = draw(torch.tensor([[2.0, 0.0]]), torch.tensor([0.0]), torch.tensor([2.0]), torch.tensor([1.0]))
    assert math.isclose(sampled.logprobs[0], math.log(1 / (1 + math.exp(-1))), rel_tol=1e-6)


def test_forbidden_tokens_have_no_part_in_the_entropy() -> None:
    sampled = draw(torch.tensor([[0.0, -math.inf]]), torch.tensor([0.9]), torch.tensor([1.0]), torch.tensor([1.0]))
    assert sampled.tokens[0] == 0
    assert sampled.entropies[0] == 0


def test_frequencies_follow_the_distribution() -> None:
    n = 4000
    uniforms = Uniforms(list(range(n))).at(0)
    tokens = draw(LOGITS.repeat(n, 1), uniforms, torch.ones(n), torch.ones(n)).tokens
    counts = torch.bincount(tokens, minlength=4) / n
    # Four standard errors of a share at n = 4000 are at most 0.032.
    assert torch.allclose(counts, LOGITS.exp()[0], atol=0.032)


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**31),
    top_p=st.floats(0.05, 1.0),
    scale=st.sampled_from(
        [0.01, 0.3, 3.0]
    ),  # with 0.01 the logits are so flat that the top-k tokens do not have the nucleus
)
def test_every_draw_is_in_its_nucleus(seed: int, top_p: float, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(20, 200, generator=generator) * scale
    uniforms = torch.rand(20, generator=generator)
    drawn = draw(logits, uniforms, torch.ones(20), torch.full((20,), top_p)).tokens
    p, order = logits.softmax(-1).sort(-1, descending=True)
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
