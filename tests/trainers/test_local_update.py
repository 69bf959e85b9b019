"""An optimiser step over several batches: its gradient, what it clips against, and its figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from local_tiny import AVERAGES, VOCABULARY, objective, tiny_model, tiny_training
from torch import Tensor
from transformers import Qwen3ForCausalLM

from core.methods import LossAverage, Method
from core.settings.training import Training
from trainers.local.batches import Row, split_rows
from trainers.local.grpo import k3, token_logprobs
from trainers.local.ranks import Ranks
from trainers.local.update import make_optimiser, update


def some_rows(count: int = 11) -> list[Row]:
    """Rows of different lengths; the sampler's log-probabilities are all 0."""
    generator = torch.Generator().manual_seed(2)

    def tokens(length: int) -> list[int]:
        return torch.randint(VOCABULARY, (length,), generator=generator).tolist()

    rows = []
    for i in range(count):
        response = tokens(1 + (5 * i) % 7)
        rows.append(Row(tokens(1 + (3 * i) % 4), response, [0.0] * len(response)))
    return rows


def some_advantages(kl: Sequence[float]) -> list[float]:
    return [(-1.0) ** i * (i % 3) for i in range(len(kl))]


def updated(
    model: Qwen3ForCausalLM,
    rows: Sequence[Row],
    training: Training,
    method: Method,
    reference: Qwen3ForCausalLM | None = None,
    **more: Any,
) -> dict[str, float]:
    """The figures of one step, which changes the model."""
    advantages, other = more.pop("advantages", some_advantages), reference or tiny_model(seed=5)
    optimiser = make_optimiser(model, training)
    return update(model, other, optimiser, rows, training, method, advantages, ranks=Ranks(), **more)


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("tokens", [None, 24])  # 24 make micro batches of 7, 3 and 1 rows
def test_micro_batches_give_the_gradient_of_the_whole_batch(average: LossAverage, tokens: int | None) -> None:
    results, method = [], objective(average, kl_coefficient=0.3, entropy_coefficient=0.1)
    for size, budget in ((100, None), (3, tokens)):
        model = tiny_model()
        figures = updated(model, some_rows(), tiny_training(micro_batch=size), method, tokens_per_micro_batch=budget)
        results.append((figures, [p.grad for p in model.parameters()], list(model.parameters())))

    (whole, gradient, weights), (split, split_gradient, split_weights) = results
    assert split == pytest.approx(whole, abs=1e-5)
    assert whole["kl"] > 0.01
    assert whole["grad_norm"] > 0.01
    torch.testing.assert_close(split_gradient, gradient, atol=1e-6, rtol=0)
    # AdamW moves a weight by the sign of a gradient that is nearly 0, so a few weights may differ by a whole step.
    moved, apart = (
        sum(float((a - b).detach().square().sum()) for a, b in zip(weights, others, strict=True)) ** 0.5
        for others in (list(tiny_model().parameters()), split_weights)
    )
    assert apart < 0.01 * moved


@given(st.lists(st.integers(1, 50), min_size=1), st.integers(1, 8), st.none() | st.integers(1, 200))
def test_every_row_is_in_one_micro_batch_that_keeps_its_limit(
    lengths: list[int], most_rows: int, most_tokens: int | None
) -> None:
    by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
    parts = split_rows(lengths, most_rows, most_tokens, by_length)
    assert [i for part in parts for i in part] == by_length
    for part, next_part in pairwise([*parts, []]):
        padded = len(part) * max(lengths[i] for i in part)
        assert len(part) == 1 or (len(part) <= most_rows if most_tokens is None else padded <= most_tokens)
        if next_part:  # the next row did not fit
            one_more = (len(part) + 1) * lengths[next_part[0]]
            assert len(part) == most_rows if most_tokens is None else one_more > most_tokens


@pytest.mark.parametrize("cap", [0.03, 1e9])
def test_rows_that_another_program_sampled_are_weighted_by_their_importance(cap: float) -> None:
    """A token of weight w adds w times its gradient: rows of one token each, with the advantage multiplied instead."""
    rows = [Row([3, i + 3], [i + 5], [-0.1 * i]) for i in range(6)]
    training, method = tiny_training(micro_batch=4), objective("sequence", kl_coefficient=0.0)
    model, expected = tiny_model(), tiny_model()
    figures = updated(model, rows, training, method, importance_cap=cap)
    own = [response_logprobs(tiny_model(), row, training).item() for row in rows]
    weights = [min(math.exp(lp - row.sampled_logprobs[0]), cap) for lp, row in zip(own, rows, strict=True)]
    scaled = [w * a for w, a in zip(weights, some_advantages([0.0] * len(rows)), strict=True)]
    updated(expected, rows, training, method, advantages=lambda _: scaled)
    torch.testing.assert_close(
        [p.grad for p in model.parameters()], [p.grad for p in expected.parameters()], atol=1e-6, rtol=1e-5
    )
    assert figures["importance_cut_share"] == pytest.approx(sum(w == cap for w in weights) / len(rows))
    effective = sum(weights) ** 2 / sum(w * w for w in weights) / len(rows)
    assert figures["importance_sample_share"] == pytest.approx(effective, rel=1e-4)


def test_mini_batches_are_clipped_against_the_policy_that_sampled() -> None:
    """A step takes two optimiser steps: the second uses the clipped gradient at the weights after the first."""
    rows = some_rows(8)
    training = tiny_training(micro_batch=100, learning_rate=0.05, weight_decay=0.0)
    method = objective("sequence", clip_low=0.01, clip_high=0.01)
    both = updated(tiny_model(), rows, training, method, rows_per_update=[4, 4])
    assert both["clip_share"] > 0  # the first mini-batch's optimiser step moved the policy before the second
    assert updated(tiny_model(), rows[:4], training, method)["clip_share"] == 0
    one = updated(tiny_model(), rows, training, method, rows_per_update=[8])
    assert one["clip_share"] == 0
    assert both["sampler_gap"] == pytest.approx(one["sampler_gap"], abs=1e-5)


def row_kl(rows: Sequence[Row], reference: Qwen3ForCausalLM, training: Training) -> list[float]:
    """The KL of each row that `update` gives to the advantages of an objective with the KL in the reward."""
    row_values: list[float] = []

    def advantages(kl: Sequence[float]) -> list[float]:
        row_values.extend(kl)
        return [0.0] * len(kl)

    method = objective("sequence", kl_in="reward")
    updated(tiny_model(), rows, training, method, reference, advantages=advantages)
    return row_values


def response_logprobs(model: Qwen3ForCausalLM, row: Row, training: Training) -> Tensor:
    ids = torch.tensor([[*row.prompt, *row.response]])
    mask = torch.arange(len(row))[None, :] >= len(row.prompt)
    return token_logprobs(model, ids, mask, training.sampling.temperature)[0][0, len(row.prompt) :].detach()


def test_each_row_s_kl_is_that_between_the_sampler_and_the_reference() -> None:
    """It is the sum of k3 over a response's tokens, whatever its batch is, in the order of the rows (SRT B.1)."""
    rows, reference, training = some_rows(), tiny_model(seed=5), tiny_training(micro_batch=3)
    for row, kl in zip(rows, row_kl(rows, reference, training), strict=True):
        expected = response_logprobs(reference, row, training)
        assert kl == pytest.approx(k3(torch.tensor(row.sampled_logprobs), expected).sum().item(), rel=1e-4)


def test_a_token_s_kl_counts_up_to_ten_nats() -> None:
    """The sampler agrees with the reference except at each response's last token, whose probability it has as e^-30: k3
    is above e^10 there, and 0 elsewhere."""
    reference, training, rows = tiny_model(seed=5), tiny_training(), []
    for row in some_rows():
        expected = response_logprobs(reference, row, training)
        assert expected[-1] > -20
        rows.append(replace(row, sampled_logprobs=[*expected[:-1].tolist(), -30.0]))
    assert row_kl(rows, reference, training) == pytest.approx([10.0] * len(rows), abs=1e-6)


def test_the_gap_to_the_sampler_is_a_mean_over_tokens() -> None:
    """The sampler's log-probabilities are 0, so the gaps are the policy's own before it moved: mean and largest."""
    rows, training = some_rows(), tiny_training()
    figures = updated(tiny_model(), rows, training, objective("sequence"))
    own = torch.cat([response_logprobs(tiny_model(), row, training) for row in rows])
    gap = [figures["sampler_gap"], figures["sampler_gap_max"]]
    assert gap == pytest.approx([own.abs().mean().item(), own.abs().max().item()], rel=1e-5)


def test_the_figures_say_how_many_tokens_were_limited() -> None:
    """The policy is nearly certain of its tokens, and the reference is uniform."""
    rows, policy, reference, training = some_rows(), tiny_model(), tiny_model(), tiny_training()
    with torch.no_grad():
        policy.get_output_embeddings().weight.mul_(10)
        reference.get_output_embeddings().weight.zero_()
    own = torch.cat([response_logprobs(policy, row, training) for row in rows])
    limited = k3(own, torch.full_like(own, -math.log(VOCABULARY))) >= 10
    figures = updated(policy, rows, training, objective("token"), reference)
    assert 0 < figures["kl_limited_share"] == pytest.approx(limited.float().mean().item())
    assert figures["ratio_limited_share"] == 0


def test_groups_without_variance_leave_the_weights_alone() -> None:
    model, training, method = tiny_model(), tiny_training(weight_decay=0.0), objective("sequence", kl_coefficient=0.0)
    figures = updated(model, some_rows(), training, method, tiny_model(), advantages=lambda kl: [0.0] * len(kl))
    assert figures["grad_norm"] == 0
    torch.testing.assert_close(model.state_dict(), tiny_model().state_dict(), atol=0, rtol=0)
