"""Updates the policy with the rollouts of one step: micro batches, summed gradients, clipping, AdamW."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from core.methods import Objective
from core.settings.training import Training
from trainers.base import TrainError
from trainers.local.batches import Batch, Row, micro_batches
from trainers.local.grpo import grpo_loss, importance_weights, k3
from trainers.local.ranks import Ranks
from trainers.local.sharding import full, is_sharded, logprobs_of


@dataclass(slots=True)
class _StepTotals:
    """Sums over response tokens and over updates."""

    tokens: float = 0.0
    entropy: float = 0.0
    kl: float = 0.0
    clipped: float = 0.0
    kl_limited: float = 0.0
    ratio_limited: float = 0.0
    sampler_gap: float = 0.0
    sampler_gap_max: float = 0.0  # not a sum: the largest
    weights: float = 0.0  # of importance, and their squares; `cut` counts those at the cap
    squares: float = 0.0
    cut: float = 0.0


def trained_parameters(model: Any) -> list[Any]:
    """All of them, or those of the adapters."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def make_optimiser(model: Any, training: Training) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        trained_parameters(model),
        training.learning_rate,
        betas=training.betas,
        weight_decay=training.weight_decay,
        fused=True,
    )


def set_learning_rate(optimiser: torch.optim.Optimizer, learning_rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = learning_rate


def update(
    model: Any,
    reference: Any,
    optimiser: torch.optim.Optimizer,
    rows: Sequence[Row],
    training: Training,
    objective: Objective,
    advantages: Callable[[Sequence[float]], Sequence[float]],
    *,
    ranks: Ranks,
    rows_per_update: Sequence[int] | None = None,
    tokens_per_micro_batch: int | None = None,
    importance_cap: float | None = None,
) -> dict[str, float]:
    """Pass once over the step's `rows`, with one optimiser step per mini-batch.

    `rows_per_update` says how many rows each mini-batch has, which are complete groups; None: there is one mini-batch.
    The old policy `pi_old` of the clipped ratio is the policy before the first optimiser step.

    `advantages` is called with each row's KL to the reference under the policy that sampled it, and returns one
    advantage per row. The KL is in nats per response: the sum over its tokens of `k3`, which is at most 10. An
    objective with its KL in the reward subtracts it from the reward (SRT B.1). B.1 prints k3 of the whole response; the
    sum over tokens and the limit are those of its released code (verl), to which B.1 refers.

    With `importance_cap` another program than the trainer has sampled the rows (`grpo.importance_weights`).

    Every rank gets all rows and works on its share, and the gradients are summed. So the result does not depend on the
    number of workers, the size of micro batches, or whether both models are sharded, except for rounding. Rows without
    advantage take part, too: they hold the policy to the reference, and they count in the mean of the loss (R-Zero
    A.1).

    Returns means over tokens: "kl" (k3, to the reference), "entropy" (nats), "clip_share",
    "kl_limited_share" and "ratio_limited_share" (of tokens whose k3 or ratio `grpo_loss` limited), and "sampler_gap"
    (the absolute difference to the sampler's log-probabilities, before the first optimiser step). "sampler_gap_max" is
    the largest such difference. "grad_norm" is the norm before clipping, a mean over optimiser steps. With
    `importance_cap` also "importance_cut_share" (of tokens whose weight is the cap) and "importance_sample_share", the
    effective sample size `(sum w)^2 / sum w^2` of the weights `w` as a share of the tokens. Raises `TrainError` if a
    gradient is not finite.
    """
    ranges = [range(*ends) for ends in pairwise(accumulate(rows_per_update or [len(rows)], initial=0))]
    mini_batches = [
        micro_batches(rows, row_range, training, objective, ranks, model.device, reference, tokens_per_micro_batch)
        for row_range in ranges
    ]
    own_batches = [batch for batches in mini_batches for batch in batches]
    row_kl = _row_kl(own_batches, len(rows), ranks, model.device)
    row_advantages = torch.tensor(advantages(row_kl), dtype=torch.float32)
    sums, norms = _StepTotals(), []
    for batch in own_batches:
        batch.advantages = row_advantages[batch.indices].to(model.device)
        if len(mini_batches) > 1:  # with one mini-batch, the pass computes the old log-probabilities itself
            with torch.no_grad():
                logprobs, _ = logprobs_of(model, batch.ids, batch.mask, training.sampling.temperature)
                _set_old(batch, logprobs, importance_cap, sums)
    for batches in mini_batches:
        optimiser.zero_grad()
        for batch in batches:
            _accumulate(model, batch, training, objective, importance_cap, sums)
        parameters = trained_parameters(model)
        if not is_sharded(model):  # the backward pass of a sharded model has already summed its gradients
            gradients = []
            for parameter in parameters:
                if parameter.grad is None:  # this rank has no rows in the mini-batch
                    parameter.grad = torch.zeros_like(parameter)
                gradients.append(parameter.grad)
            ranks.add(*gradients)
        # The norm before clipping is that of all ranks' shares.
        norm = full(torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
        torch.nn.utils.clip_grads_with_norm_(parameters, training.max_grad_norm, norm)
        norms.append(float(norm))
        if not math.isfinite(norms[-1]):
            raise TrainError(f"gradient norm: expected a finite number, got {norms[-1]}")
        optimiser.step()
    return {**_means(sums, ranks, model.device), "grad_norm": sum(norms) / len(norms)}


def _row_kl(batches: Sequence[Batch], count: int, ranks: Ranks, device: torch.device) -> list[float]:
    """The KL of each row to the reference, in nats, from the sampler's log-probabilities; for the rows of all ranks.

    It is computed in double precision, because in single precision k3 loses digits by cancellation. Where all rollouts
    of a group earn the same reward, their KL alone makes the advantages.
    """
    kl = torch.zeros(count, dtype=torch.float64, device=device)
    for batch in batches:
        tokens = k3(batch.sampled.double(), batch.reference.double())
        kl[batch.indices] = (tokens * batch.mask).sum(1)
    ranks.add(kl)
    values: list[float] = kl.tolist()
    return values


def _accumulate(
    model: Any,
    batch: Batch,
    training: Training,
    objective: Objective,
    importance_cap: float | None,
    sums: _StepTotals,
) -> None:
    """Add one micro batch's gradient to the model's gradient, and its figures to `sums`."""
    sampling, has_entropy_bonus = training.sampling, objective.entropy_coefficient > 0
    logprobs, entropies = logprobs_of(
        model, batch.ids, batch.mask, sampling.temperature, entropy_gradient=has_entropy_bonus
    )
    if not batch.indices:
        logprobs.sum().backward()  # there is no response token, so every gradient is 0
        return
    old = _set_old(batch, logprobs, importance_cap, sums) if batch.old is None else batch.old
    loss, parts = grpo_loss(
        logprobs,
        old,
        batch.reference,
        entropies,
        batch.advantages,
        batch.mask,
        objective,
        sampling.max_tokens,
        batch.importance,
    )
    (loss * batch.weight).backward()
    sums.tokens += float(batch.mask.sum())
    sums.entropy += float(entropies.detach().sum())
    sums.kl += float(parts["kl"])
    sums.clipped += float(parts["clipped"])
    sums.kl_limited += float(parts["kl_limited"])
    sums.ratio_limited += float(parts["ratio_limited"])


def _set_old(batch: Batch, logprobs: Tensor, importance_cap: float | None, sums: _StepTotals) -> Tensor:
    """Set `batch.old` to the policy's `logprobs`, which were computed before any update, and the importance of its
    tokens, and measure the sampler gap.

    The sampler's own log-probabilities are not used as the old ones, because its cache rounds differently. With the
    policy's, the ratio starts at exactly 1.
    """
    old = batch.old = logprobs.detach()
    if importance_cap is not None:
        weights = importance_weights(old, batch.sampled, importance_cap)
        batch.importance, counted = weights, weights[batch.mask]
        sums.cut += float((counted == importance_cap).sum())  # in float32, as most caps are another number in double
        sums.weights += float(counted.double().sum())
        sums.squares += float(counted.double().square().sum())
    gaps = (old - batch.sampled).abs()
    sums.sampler_gap += float(gaps.sum())
    sums.sampler_gap_max = max(sums.sampler_gap_max, float(gaps.max()))
    return old


def _means(sums: _StepTotals, ranks: Ranks, device: torch.device) -> dict[str, float]:
    by_name = {
        "kl": sums.kl,
        "entropy": sums.entropy,
        "clip_share": sums.clipped,
        "kl_limited_share": sums.kl_limited,
        "ratio_limited_share": sums.ratio_limited,
        "sampler_gap": sums.sampler_gap,
        "importance_cut_share": sums.cut,
        "weight": sums.weights,
        "square": sums.squares,
    }
    totals = torch.tensor([sums.tokens, *by_name.values()], dtype=torch.float64, device=device)
    ranks.add(totals)
    figures = dict(zip(by_name, (totals[1:] / totals[0]).tolist(), strict=True))
    figures["sampler_gap_max"] = max(ranks.map(range(ranks.size), lambda _: [sums.sampler_gap_max]))
    weight, square = figures.pop("weight"), figures.pop("square")
    if square:
        figures["importance_sample_share"] = weight**2 / square
    else:
        del figures["importance_cut_share"]
    return figures
