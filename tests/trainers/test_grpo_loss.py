"""The loss and its gradients, compared with values by hand and with TRL, and for different micro batches."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from local_tiny import AVERAGES, SETTINGS, VOCABULARY, objective, save_tiny, tiny_model, tiny_tokenizer
from torch import Tensor
from transformers import Qwen3ForCausalLM

from core.methods import LossAverage
from trainers.local.grpo import grpo_loss, token_logprobs

MAX_TOKENS = 8


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
    gradient = inputs["entropies"].grad
    assert gradient is not None
    torch.testing.assert_close(gradient[inputs["mask"]], torch.tensor([-0.2 * weight for weight in weights]))


@pytest.mark.parametrize("average", AVERAGES)
def test_a_kl_in_the_reward_is_not_in_the_loss(average: LossAverage) -> None:
    inputs = hand_worked()
    loss, parts = grpo_loss(**inputs, objective=objective(average, kl_in="reward"), max_tokens=MAX_TOKENS)
    without, _ = grpo_loss(**inputs, objective=objective(average, kl_coefficient=0.0), max_tokens=MAX_TOKENS)
    assert loss == without
    assert parts["kl"].item() == pytest.approx(0.5, abs=1e-6)  # it is measured in both cases


INFINITE = math.inf

# One token: its log-probabilities by the policy, the old policy and the reference, its advantage, the coefficient of
# the KL; the loss, its gradient, and whether k3 and the ratio were limited. Limits: 20 for log-ratios, 10 for k3.
LIMITS = {
    "ordinary": (-1.0, -1.0, -1.0 + math.log(2), 1.0, 0.1, -1 + 0.1 * (1 - math.log(2)), -1 - 0.1, 0, 0),
    "k3 just below its limit": (-3.0, -3.0, -0.5, 0.0, 1.0, math.exp(2.5) - 3.5, 1 - math.exp(2.5), 0, 0),
    "k3 above its limit": (-50.0, -50.0, -1.0, 0.0, 0.01, 0.1, 0.0, 1, 0),
    "k3 overflows": (-100.0, -100.0, -1.0, 0.0, 0.01, 0.1, 0.0, 1, 0),
    "k3 overflows, and its coefficient is 0": (-100.0, -100.0, -1.0, 0.0, 0.0, 0.0, 0.0, 1, 0),
    "the reference says never": (-1.0, -1.0, -INFINITE, 0.0, 0.01, 0.1, 0.0, 1, 0),
    "the policy says never": (-INFINITE, -1.0, -1.0, 0.0, 0.01, 0.1, 0.0, 1, 1),
    "the ratio overflows without an advantage": (-1.0, -100.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0, 1),
    "the ratio overflows": (-1.0, -100.0, -1.0, -1.0, 0.0, math.exp(20), 0.0, 0, 1),
    "the ratio overflows, and is clipped": (-1.0, -100.0, -1.0, 1.0, 0.0, -1.28, 0.0, 0, 1),
    "the old policy said never": (-1.0, -INFINITE, -1.0, 0.0, 0.0, 0.0, 0.0, 0, 1),
    "policy and reference say never": (-INFINITE, -1.0, -INFINITE, 0.0, 0.01, 0.0, 0.0, 0, 1),
    "all three say never": (-INFINITE, -INFINITE, -INFINITE, 1.0, 0.01, -1.0, 0.0, 0, 0),
    "the ratio underflows": (-100.0, -1.0, -100.0, 1.0, 0.0, -math.exp(-20), 0.0, 0, 1),
}


@pytest.mark.parametrize("case", LIMITS)
def test_log_ratios_and_k3_are_limited(case: str) -> None:
    policy, old, reference, advantage, coefficient, expected, gradient, kl_limited, ratio_limited = LIMITS[case]
    logprobs = torch.tensor([[policy]], requires_grad=True)
    loss, parts = grpo_loss(
        logprobs,
        torch.tensor([[old]]),
        torch.tensor([[reference]]),
        torch.tensor([[INFINITE]]),  # the entropy, whose coefficient is 0
        torch.tensor([advantage]),
        torch.tensor([[True]]),
        objective("token", kl_coefficient=coefficient),
        MAX_TOKENS,
    )
    loss.backward()
    assert logprobs.grad is not None
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert logprobs.grad.item() == pytest.approx(gradient, rel=1e-5)
    assert parts["kl"].item() <= 10
    assert (parts["kl_limited"].item(), parts["ratio_limited"].item()) == (kl_limited, ratio_limited)


def test_what_lies_outside_the_mask_may_be_infinite() -> None:
    inputs = hand_worked()
    expected, _ = grpo_loss(**inputs, objective=objective("token"), max_tokens=MAX_TOKENS)
    for name in ("old_logprobs", "reference_logprobs"):
        inputs[name] = torch.where(inputs["mask"], inputs[name], -INFINITE)
    loss, _ = grpo_loss(**inputs, objective=objective("token"), max_tokens=MAX_TOKENS)
    loss.backward()
    assert loss == expected
    assert inputs["logprobs"].grad is not None
    assert inputs["logprobs"].grad.isfinite().all()


@pytest.mark.parametrize("average", AVERAGES)
def test_a_response_without_tokens_adds_nothing(average: LossAverage) -> None:
    inputs = hand_worked()
    inputs["mask"] = torch.tensor([[False, True, True, False], [False, False, False, False]])
    loss, _ = grpo_loss(**inputs, objective=objective(average), max_tokens=MAX_TOKENS)
    loss.backward()
    weight = {"token": 1 / 2, "sequence": 1 / 4, "max_length": 1 / 16}[average]
    assert loss.item() == pytest.approx(-2.2493147 * weight, rel=1e-6)
    assert inputs["logprobs"].grad is not None
    assert inputs["logprobs"].grad.isfinite().all()


@settings(max_examples=50)
@given(st.integers(0, 2**31), st.sampled_from(AVERAGES))
def test_below_the_limits_loss_and_gradient_have_the_bits_of_the_formula(seed: int, average: LossAverage) -> None:
    generator = torch.Generator().manual_seed(seed)
    logprobs, old, reference, entropies = (-torch.rand(3, 5, generator=generator) for _ in range(4))
    advantages, mask = torch.randn(3, generator=generator), torch.rand(3, 5, generator=generator) < 0.8
    mask[:, 0] = True
    method = objective(average, entropy_coefficient=0.01)
    results = []
    for limited in (True, False):
        variable = logprobs.clone().requires_grad_()
        if limited:
            loss, _ = grpo_loss(variable, old, reference, entropies, advantages, mask, method, MAX_TOKENS)
        else:
            ratio, advantage, log_ratio = (variable - old).exp(), advantages[:, None], reference - variable
            surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - 0.2, 1 + 0.28) * advantage)
            token_loss = 0.1 * (log_ratio.exp() - log_ratio - 1) - surrogate - 0.01 * entropies
            sums = (token_loss * mask).sum(1)
            loss = {
                "token": sums.sum() / mask.sum(),
                "sequence": (sums / mask.sum(1)).mean(),
                "max_length": (sums / MAX_TOKENS).mean(),
            }[average]
        loss.backward()
        assert variable.grad is not None
        results.append((loss.item(), variable.grad.tolist()))
    assert results[0] == results[1]


def test_an_impossible_token_adds_nothing_to_the_entropy_nor_to_its_gradient() -> None:
    """Logits of -inf, as where a model masks tokens, and a probability that underflows."""
    logits = torch.tensor([[0.0, 0.0, -INFINITE, -INFINITE], [0.0, 0.0, -200.0, 1.0]])
    model = tiny_model()
    model.forward = lambda **_: SimpleNamespace(logits=logits[None])  # type: ignore[method-assign,assignment]
    logits.requires_grad_()
    ids, mask = torch.tensor([[0, 1, 1]]), torch.tensor([[False, True, True]])
    logprobs, entropies = token_logprobs(model, ids, mask, 1.0, entropy_gradient=True)
    (logprobs.sum() + entropies.sum()).backward()
    possible = torch.tensor([0.0, 0.0, 1.0])
    expected = torch.tensor([math.log(2), torch.distributions.Categorical(logits=possible).entropy()])
    torch.testing.assert_close(entropies[mask], expected)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


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
        own = token_logprobs(model, ids, mask, 0.7)[0]
    # The old log-probabilities are near the policy's, like a sampler's: some ratios are clipped and some are not. The
    # reference's are near them, too, because TRL does not limit k3.
    old, reference = own + 0.1 * (old - old.mean()), own + 0.2 * (reference - reference.mean())

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
