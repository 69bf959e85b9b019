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
    uniform: float,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    logits: Tensor = LOGITS,
    dropped: tuple[int, ...] | None = None,
) -> Draw:
    numbers = [torch.tensor([number]) for number in (uniform, temperature, top_p, top_k)]
    if dropped is None:
        return draw(logits, *numbers)
    mask = torch.ones_like(logits, dtype=torch.bool)
    mask[0, list(dropped)] = False
    return draw(logits, *numbers, mask)


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
        # Without token 0 there are 0.2, 0.2 and 0.1, which are 0.4, 0.4 and 0.2 of their sum; without token 1, 0.5, 0.2
        # and 0.1, which are 5/8, 2/8 and 1/8.
        ({"dropped": (0,)}, {0.0: 1, 0.39: 1, 0.41: 2, 0.79: 2, 0.81: 3, 0.999: 3}),
        ({"dropped": (1,)}, {0.0: 0, 0.62: 0, 0.63: 2, 0.87: 2, 0.88: 3}),
        ({"dropped": (0,), "temperature": 0.0}, {0.0: 1, 0.999: 1}),
        # Of 0.4, 0.4 and 0.2, two reach 0.6; of all four tokens, no two of these three would.
        ({"dropped": (0,), "top_p": 0.6}, {0.49: 1, 0.51: 2, 0.999: 2}),
        ({"dropped": (0,), "top_k": 1}, {0.999: 1}),
        ({"dropped": (0,), "top_k": 2}, {0.49: 1, 0.51: 2}),
        ({"dropped": (0, 1, 2)}, {0.0: 3, 0.999: 3}),
    ],
)
def test_a_draw_inverts_the_cumulated_distribution_by_hand(settings: dict[str, Any], tokens: dict[float, int]) -> None:
    assert {uniform: int(sample(uniform, **settings).tokens[0]) for uniform in tokens} == tokens


@pytest.mark.parametrize("settings", [{"top_p": 0.5}, {"top_k": 1}, {"dropped": (1, 3)}])
def test_logprob_and_entropy_are_those_of_the_whole_distribution(settings: dict[str, Any]) -> None:
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


@pytest.mark.parametrize(
    ("logits", "tokens"),
    [
        # What is left has a probability of e^-200, which is 0 in float32: token 1 has e/(e + 1) = 0.731 of it.
        ([0.0, -200.0, -201.0], {0.0: 1, 0.73: 1, 0.74: 2, 0.999: 2}),
        ([0.0, -math.inf, -1e5], {0.0: 2, 0.999: 2}),
        ([0.0, -math.inf, -math.inf], {0.0: 1, 0.49: 1, 0.51: 2}),
    ],
)
@pytest.mark.parametrize("temperature", [1e-3, 1.0])
def test_what_a_mask_leaves_is_drawn_however_improbable(
    logits: list[float], tokens: dict[float, int], temperature: float
) -> None:
    given = torch.tensor([logits]) * temperature
    drawn = {uniform: sample(uniform, temperature, logits=given, dropped=(0,)) for uniform in tokens}
    assert {uniform: int(draw.tokens[0]) for uniform, draw in drawn.items()} == tokens
    assert all(draw.logprobs[0] <= -200 and draw.entropies[0] == 0 for draw in drawn.values())


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


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**31),
    left=st.integers(1, 199),
    temperature=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    top_p=st.floats(0.05, 1.0),
    top_k=st.sampled_from([0, 1, 40, 65, 1000]),
    scale=st.sampled_from([0.01, 3.0, 300.0]),  # 300: nearly all probabilities are 0
)
def test_a_dropped_token_is_never_drawn_and_other_rows_stay_as_they_are(
    seed: int, left: int, temperature: float, top_p: float, top_k: int, scale: float
) -> None:
    """Every second row has a mask that leaves so many of 200 tokens."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(20, 200, generator=generator) * scale
    numbers = [torch.rand(20, generator=generator), *(torch.full((20,), x) for x in (temperature, top_p, top_k))]
    mask = torch.rand(20, 200, generator=generator).argsort(-1) < left
    mask[::2] = True
    together, free = draw(logits, *numbers, mask), draw(logits, *numbers)
    assert mask.gather(-1, together.tokens[:, None]).all()
    assert torch.equal(together.entropies, free.entropies)
    assert torch.equal(together.tokens[::2], free.tokens[::2])
    assert torch.equal(together.logprobs[::2], free.logprobs[::2])
    for row in range(1, 20, 6):
        alone = draw(logits[row : row + 1], *(x[row : row + 1] for x in numbers), mask[row : row + 1])
        assert (alone.tokens[0], alone.logprobs[0]) == (together.tokens[row], together.logprobs[row])


def test_a_mask_of_all_tokens_changes_no_draw_at_the_edge_between_two_tokens() -> None:
    """There the last bit of a probability decides."""
    logits = torch.randn(500, 200, generator=torch.Generator().manual_seed(0))
    cumulated = torch.log_softmax(logits, -1).exp().cumsum(-1)
    numbers = [cumulated[:, 99] / cumulated[:, -1], torch.ones(500), torch.ones(500), torch.zeros(500)]
    masked, free = draw(logits, *numbers, torch.ones_like(logits, dtype=torch.bool)), draw(logits, *numbers)
    assert torch.equal(masked.tokens, free.tokens)


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
