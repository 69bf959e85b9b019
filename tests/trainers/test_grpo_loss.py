"""The loss and its gradients, compared with values by hand and with TRL, and for different micro batches."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from local_tiny import VOCABULARY, save_tiny, tiny_model, tiny_tokenizer, tiny_training
from torch import Tensor
from transformers import Qwen3ForCausalLM

from core.methods import LossAverage
from core.methods.rzero import RZero
from core.settings.training import Training
from trainers.local.grpo import grpo_loss, k3, token_logprobs
from trainers.local.ranks import Ranks
from trainers.local.update import Row, make_optimiser, update

SETTINGS: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.28, "kl_coefficient": 0.1}
AVERAGES: list[LossAverage] = ["sequence", "token", "max_length"]
MAX_TOKENS = 8


def objective(average: LossAverage, **changes: Any) -> RZero:
    return RZero(loss_average=average, **{**SETTINGS, **changes})


def hand_worked() -> dict[str, Tensor]:
    """A response of two tokens and one of one token, in a batch padded to four; the padding is 9 and must not be used.

    A = (1, -2). The ratios are 1.5 and 1 in the first, 1/2 in the second. pi_ref / pi is 2, 1 and 1/2.
    """
    mask = torch.tensor([[False, True, True, False], [False, False, True, False]])
    logprobs = torch.tensor([[9.0, -1.0, -2.0, 9.0], [9.0, 9.0, -3.0, 9.0]], requires_grad=True)
    log_ratio = torch.tensor([[9.0, math.log(1.5), 0.0, 9.0], [9.0, 9.0, -math.log(2), 9.0]])
    reference_log_ratio = torch.tensor([[9.0, math.log(2), 0.0, 9.0], [9.0, 9.0, -math.log(2), 9.0]])
    return {
        "logprobs": logprobs,
        "old_logprobs": logprobs.detach() - log_ratio,
        "reference_logprobs": logprobs.detach() + reference_log_ratio,
        "entropies": torch.tensor([[9.0, 0.5, 0.25, 9.0], [9.0, 9.0, 1.0, 9.0]], requires_grad=True),
        "advantages": torch.tensor([1.0, -2.0]),
        "mask": mask,
    }


# clip_low 0.2, clip_high 0.28, KL 0.1. Negative surrogates: min(1.5, 1.28) -> -1.28, clipped; min(1, 1) -> -1;
# min(-1, 0.8 * -2) -> 1.6, clipped. k3: 2 - ln 2 - 1 = 0.306853; 0; 1/2 + ln 2 - 1 = 0.193147, together 0.5.
# Tokens: -1.28 + 0.0306853 = -1.2493147;  -1;  1.6 + 0.0193147 = 1.6193147.
# "token": their sum -0.63 over 3.  "sequence": ((-1.2493147 - 1) / 2 + 1.6193147) / 2.  "max_length": -0.63 / 8 / 2.
# Derivatives: a clipped token has only the KL's, 0.1 * (1 - exp(ref - lp)): 0.1 * (1 - 2) = -0.1, and
# 0.1 * (1 - 1/2) = 0.05; the token in between has -ratio * A = -1 and no KL. Weights: 1/3 each; or 1/4, 1/4, 1/2; or
# 1/16 each.
EXPECTED = {
    "token": (-0.63 / 3, (-0.1 / 3, -1 / 3, 0.05 / 3)),
    "sequence": ((-2.2493147 / 2 + 1.6193147) / 2, (-0.1 / 4, -1 / 4, 0.05 / 2)),
    "max_length": (-0.63 / 16, (-0.1 / 16, -1 / 16, 0.05 / 16)),
}


@pytest.mark.parametrize("average", AVERAGES)
def test_loss_and_gradient_are_those_worked_by_hand(average: LossAverage) -> None:
    inputs = hand_worked()
    loss, parts = grpo_loss(**inputs, objective=objective(average), max_tokens=MAX_TOKENS)
    loss.backward()

    expected, (first, second, third) = EXPECTED[average]
    gradient = torch.tensor([[0.0, first, second, 0.0], [0.0, 0.0, third, 0.0]])
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    torch.testing.assert_close(inputs["logprobs"].grad, gradient, atol=1e-7, rtol=0)
    assert parts["kl"].item() == pytest.approx(0.5, abs=1e-6)
    assert parts["clipped"].item() == 2


# Entropies 0.5, 0.25 and 1 with the coefficient 0.2 add -0.1, -0.05 and -0.2 to the tokens' losses; the derivatives are
# -0.2 each.
ENTROPY_BONUS = {"token": -0.35 / 3, "sequence": (-0.15 / 2 - 0.2) / 2, "max_length": -0.35 / 16}


@pytest.mark.parametrize("average", AVERAGES)
def test_the_entropy_bonus_by_hand(average: LossAverage) -> None:
    inputs = hand_worked()
    loss, _ = grpo_loss(**inputs, objective=objective(average, entropy_coefficient=0.2), max_tokens=MAX_TOKENS)
    loss.backward()
    assert loss.item() == pytest.approx(EXPECTED[average][0] + ENTROPY_BONUS[average], abs=1e-6)
    weights = {"token": (1 / 3,) * 3, "sequence": (1 / 4, 1 / 4, 1 / 2), "max_length": (1 / 16,) * 3}[average]
    gradient = inputs["entropies"].grad[inputs["mask"]]  # type: ignore[index]
    torch.testing.assert_close(gradient, torch.tensor([-0.2 * weight for weight in weights]))


@pytest.mark.parametrize("average", AVERAGES)
def test_a_kl_in_the_reward_is_not_in_the_loss(average: LossAverage) -> None:
    inputs = hand_worked()
    loss, parts = grpo_loss(**inputs, objective=objective(average, kl_in="reward"), max_tokens=MAX_TOKENS)
    without, _ = grpo_loss(**inputs, objective=objective(average, kl_coefficient=0.0), max_tokens=MAX_TOKENS)
    assert loss == without
    assert parts["kl"].item() == pytest.approx(0.5, abs=1e-6)  # it is measured in both cases


def test_k3_by_hand() -> None:
    # pi_ref / pi of 2, 1 and 1/2: 2 - 1 - ln 2; 0; 1/2 - 1 + ln 2 (SRT B.1).
    reference_log_ratio = torch.tensor([math.log(2), 0.0, -math.log(2)])
    expected = torch.tensor([1 - math.log(2), 0.0, math.log(2) - 1 / 2])
    torch.testing.assert_close(k3(torch.zeros(3), reference_log_ratio), expected)


@settings(max_examples=50)
@given(st.integers(0, 2**31), st.sampled_from(AVERAGES))
def test_without_advantage_nor_kl_the_gradient_is_zero(seed: int, average: LossAverage) -> None:
    generator = torch.Generator().manual_seed(seed)
    logprobs, old, reference, entropies = (-torch.rand(3, 5, generator=generator) for _ in range(4))
    logprobs.requires_grad_()
    mask = torch.ones(3, 5, dtype=torch.bool)
    loss, _ = grpo_loss(
        logprobs, old, reference, entropies, torch.zeros(3), mask, objective(average, kl_coefficient=0.0), MAX_TOKENS
    )
    loss.backward()
    assert logprobs.grad is not None
    assert not logprobs.grad.any()


def test_token_logprobs_of_a_batch_equal_a_forward_pass_of_each_row_alone() -> None:
    model, generator = tiny_model(), torch.Generator().manual_seed(1)
    spans = [(2, 7), (5, 6), (1, 9)]  # a response is ids[begin:end]
    ids, mask = torch.zeros(3, 9, dtype=torch.long), torch.zeros(3, 9, dtype=torch.bool)
    for row, (begin, end) in enumerate(spans):
        ids[row, :end] = torch.randint(VOCABULARY, (end,), generator=generator)
        mask[row, begin:end] = True
    logprobs, entropy = token_logprobs(model, ids, mask, temperature=0.7)

    for row, (begin, end) in enumerate(spans):
        distribution = torch.distributions.Categorical(logits=model(ids[row : row + 1, :end]).logits[0, :-1] / 0.7)
        expected = distribution.log_prob(ids[row, 1:end])[begin - 1 :]
        torch.testing.assert_close(logprobs[row, begin:end], expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(entropy[row, begin:end], distribution.entropy()[begin - 1 :], atol=1e-5, rtol=0)
    assert not logprobs[~mask].any()
    assert not entropy[~mask].any()


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


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("passes", [1, 3])
def test_micro_batches_give_the_gradient_of_the_whole_batch(average: LossAverage, passes: int) -> None:
    reference, results = tiny_model(seed=5), []
    for size in (100, 3):
        model = tiny_model()
        training = tiny_training(micro_batch=size, updates_per_step=passes)
        method = objective(average, kl_coefficient=0.3, entropy_coefficient=0.1)
        optimiser = make_optimiser(model, training)
        figures = update(model, reference, optimiser, some_rows(), training, method, some_advantages, ranks=Ranks())
        results.append((figures, [p.grad for p in model.parameters()], list(model.parameters())))

    (whole, gradient, weights), (split, split_gradient, split_weights) = results
    assert split == pytest.approx(whole, abs=1e-5)
    assert whole["kl"] > 0.01
    assert whole["grad_norm"] > 0.01
    # Later passes begin from weights that AdamW has moved, where a gradient is nearly 0 by its sign only.
    if passes == 1:
        torch.testing.assert_close(split_gradient, gradient, atol=1e-6, rtol=0)
    torch.testing.assert_close(split_weights, weights, atol=1e-4, rtol=0)


def test_mini_batches_are_clipped_against_the_policy_that_sampled() -> None:
    """A step takes two optimiser steps: the second uses the clipped gradient at the weights after the first."""
    rows, reference = some_rows(8), tiny_model(seed=5)
    training = tiny_training(micro_batch=100, learning_rate=0.05, weight_decay=0.0)
    method = objective("sequence", clip_low=0.01, clip_high=0.01)
    model = tiny_model()
    optimiser = make_optimiser(model, training)
    both = update(
        model, reference, optimiser, rows, training, method, some_advantages, ranks=Ranks(), rows_per_update=4
    )
    assert both["clip_share"] > 0  # the first mini-batch's optimiser step moved the policy before the second

    alone = tiny_model()
    optimiser = make_optimiser(alone, training)
    first = update(alone, reference, optimiser, rows[:4], training, method, some_advantages, ranks=Ranks())
    assert first["clip_share"] == 0
    whole = tiny_model()
    optimiser = make_optimiser(whole, training)
    one = update(whole, reference, optimiser, rows, training, method, some_advantages, ranks=Ranks(), rows_per_update=8)
    assert one["clip_share"] == 0
    assert both["sampler_gap"] == pytest.approx(one["sampler_gap"], abs=1e-5)


def row_kl(rows: Sequence[Row], reference: Qwen3ForCausalLM, training: Training) -> list[float]:
    """The KL of each row that `update` gives to the advantages of an objective with the KL in the reward."""
    row_values: list[float] = []

    def advantages(kl: Sequence[float]) -> list[float]:
        row_values.extend(kl)
        return [0.0] * len(kl)

    model, method = tiny_model(), objective("sequence", kl_in="reward")
    update(model, reference, make_optimiser(model, training), rows, training, method, advantages, ranks=Ranks())
    return row_values


def response_logprobs(model: Qwen3ForCausalLM, row: Row, training: Training) -> Tensor:
    ids = torch.tensor([[*row.prompt, *row.response]])
    mask = torch.arange(len(row))[None, :] >= len(row.prompt)
    return token_logprobs(model, ids, mask, training.sampling.temperature)[0][0, len(row.prompt) :].detach()


def test_each_row_s_kl_is_that_between_the_sampler_and_the_reference() -> None:
    """It is the sum of k3 over a response's tokens, whatever its batch is, in the order of the rows (SRT B.1)."""
    rows, reference, training = some_rows(), tiny_model(seed=5), tiny_training(micro_batch=3)
    for row, kl in zip(rows, row_kl(rows, reference, training), strict=True):
        reference_logprobs_ = response_logprobs(reference, row, training)
        assert kl == pytest.approx(k3(torch.tensor(row.sampled_logprobs), reference_logprobs_).sum().item(), rel=1e-4)


def test_a_token_s_kl_counts_up_to_ten_nats() -> None:
    """The sampler agrees with the reference except at each response's last token, whose probability it has as e^-30: k3
    is above e^10 there, and 0 elsewhere."""
    reference, training, rows = tiny_model(seed=5), tiny_training(), []
    for row in some_rows():
        reference_logprobs_ = response_logprobs(reference, row, training)
        assert reference_logprobs_[-1] > -20
        rows.append(replace(row, sampled_logprobs=[*reference_logprobs_[:-1].tolist(), -30.0]))
    assert row_kl(rows, reference, training) == pytest.approx([10.0] * len(rows), abs=1e-6)


def test_the_gap_to_the_sampler_is_a_mean_over_tokens_for_any_number_of_passes() -> None:
    """The sampler's log-probabilities are 0, so the gap is the mean of the policy's own before it moved."""
    rows, gaps = some_rows(), []
    for passes in (1, 3):
        model, training = tiny_model(), tiny_training(updates_per_step=passes)
        figures = update(
            model,
            tiny_model(seed=5),
            make_optimiser(model, training),
            rows,
            training,
            objective("sequence"),
            some_advantages,
            ranks=Ranks(),
        )
        gaps.append(figures["sampler_gap"])
    own = torch.cat([response_logprobs(tiny_model(), row, training) for row in rows])
    assert gaps == pytest.approx([own.abs().mean().item()] * 2, rel=1e-5)


def test_groups_without_variance_leave_the_weights_alone() -> None:
    model, training = tiny_model(), tiny_training(weight_decay=0.0)
    figures = update(
        model,
        copy.deepcopy(model),
        make_optimiser(model, training),
        some_rows(),
        training,
        objective("sequence", kl_coefficient=0.0),
        lambda kl: [0.0] * len(kl),
        ranks=Ranks(),
    )
    assert figures["grad_norm"] == 0
    torch.testing.assert_close(model.state_dict(), tiny_model().state_dict(), atol=0, rtol=0)


def trl_loss(model: Any, batch: dict[str, Tensor], average: str, folder: Path) -> Tensor:
    """The same loss by TRL's trainer. Its "grpo" averages over sequences, its "bnpo" over the batch's tokens, and its
    "dr_grpo" over sequences of the greatest length.
    """
    trl = pytest.importorskip("trl", reason="TRL, the independent implementation, is not installed")
    datasets = pytest.importorskip("datasets", reason="TRL needs datasets")
    trainer = trl.GRPOTrainer(
        model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=trl.GRPOConfig(
            output_dir=str(folder),
            loss_type={"sequence": "grpo", "token": "bnpo", "max_length": "dr_grpo"}[average],
            max_completion_length=MAX_TOKENS,
            beta=SETTINGS["kl_coefficient"],
            epsilon=SETTINGS["clip_low"],
            epsilon_high=SETTINGS["clip_high"],
            use_bias_correction_kl=False,
            temperature=0.7,
            per_device_train_batch_size=2,
            num_generations=2,
            use_cpu=True,
            bf16=False,
            activation_checkpointing=False,
            report_to=[],
        ),
        train_dataset=datasets.Dataset.from_dict({"prompt": ["a"]}),
        processing_class=tiny_tokenizer(),
    )
    trainer.current_gradient_accumulation_steps = 1
    loss: Tensor = trainer._compute_loss(model, batch)
    return loss


@pytest.mark.parametrize("average", AVERAGES)
def test_loss_and_gradient_are_trl_s(average: LossAverage, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    prompts, lengths, size = 4, torch.tensor([5, 2, 1]), 5
    ids = torch.randint(2, VOCABULARY, (3, prompts + size), generator=generator)
    completion_mask = torch.arange(size) < lengths[:, None]
    mask = torch.cat([torch.zeros(3, prompts, dtype=torch.bool), completion_mask], dim=1)
    ids[:, prompts:][~completion_mask] = 0
    model, advantages = tiny_model(), torch.tensor([1.2, -0.7, 0.4])
    with torch.no_grad():
        old, reference = (token_logprobs(tiny_model(seed), ids, mask, 0.7)[0] for seed in (1, 2))
    # The old log-probabilities are near the policy's, like a sampler's: some ratios are clipped and some are not.
    old = token_logprobs(model, ids, mask, 0.7)[0].detach() + 0.1 * (old - old.mean())

    logprobs, entropies = token_logprobs(model, ids, mask, 0.7)
    loss, parts = grpo_loss(logprobs, old, reference, entropies, advantages, mask, objective(average), MAX_TOKENS)
    loss.backward()
    assert 0 < parts["clipped"] < mask.sum()

    save_tiny(tmp_path / "model")  # TRL needs a reference model in a folder, though this test does not use it
    other = Qwen3ForCausalLM.from_pretrained(tmp_path / "model")
    batch = {
        "prompt_ids": ids[:, :prompts],
        "prompt_mask": torch.ones(3, prompts, dtype=torch.long),
        "completion_ids": ids[:, prompts:],
        "completion_mask": completion_mask.long(),
        "advantages": advantages,
        "old_per_token_logps": old[:, prompts:],
        "ref_per_token_logps": reference[:, prompts:],
    }
    their_loss = trl_loss(other, batch, average, tmp_path)
    their_loss.backward()  # type: ignore[no-untyped-call]

    torch.testing.assert_close(loss, their_loss, atol=1e-6, rtol=1e-5)
    gradients, theirs = ([p.grad for p in m.parameters()] for m in (model, other))
    torch.testing.assert_close(gradients, theirs, atol=1e-6, rtol=1e-4)
