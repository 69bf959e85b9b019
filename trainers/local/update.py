"""One step's update of the policy: micro batches, summed gradients, clipping, AdamW."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from core.config import Training
from core.methods import Objective
from trainers.base import TrainError
from trainers.local.grpo import grpo_loss, k3, token_logprobs
from trainers.local.ranks import Ranks

# EasyR1, with which R-Zero was trained, takes torch's (0.9, 0.999) (verl/workers/actor/config.py). A job has a dozen or
# two steps here, and a second moment that remembers a thousand is then little but its bias correction; the demo's
# learning rates were found with (0.9, 0.99).
BETAS = (0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Row:
    """A rollout to learn from, as token ids, and the sampler's own log-probabilities of the response."""

    prompt: Sequence[int]
    response: Sequence[int]
    sampled_logprobs: Sequence[float]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.response)


@dataclass(slots=True)
class _Batch:
    """A micro batch of `B` rows padded to `T` tokens."""

    places: list[int]  # of its rows in the step
    ids: Tensor  # (B, T)
    mask: Tensor  # (B, T), True at response tokens
    sampled: Tensor  # (B, T)
    reference: Tensor  # (B, T)
    weight: float  # its share of the step's mean
    advantages: Tensor = field(default_factory=lambda: torch.empty(0))  # (B,)
    old: Tensor | None = None  # (B, T), the policy's own before the first pass


@dataclass(slots=True)
class _Sums:
    """Sums over response tokens and over updates."""

    tokens: float = 0.0
    entropy: float = 0.0
    kl: float = 0.0
    clipped: float = 0.0
    sampler_gap: float = 0.0


def make_optimiser(model: Any, training: Training) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        model.parameters(), training.learning_rate, betas=BETAS, weight_decay=training.weight_decay, fused=True
    )


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
) -> dict[str, float]:
    """Do `training.updates_per_step` passes over the whole step's `rows`, each one optimiser step.

    `advantages` makes one for each row of the rows' KL to the reference under the policy that sampled them, in nats a
    response (the sum of k3 over its tokens), which an objective with its KL in the reward takes off the reward (SRT
    B.1).

    Every rank gets all rows and takes its share; the gradients are summed, so that any number of workers and any
    micro batch give one worker's result up to rounding. Rows without advantage stay in: they hold the policy to the
    reference, and they count in the loss's mean (R-Zero A.1).

    Returns means over tokens and passes: "kl" (k3, to the reference), "entropy" (nats), "clip_share", "sampler_gap"
    (absolute difference to the sampler's log-probabilities, before the first pass), and "grad_norm" before clipping,
    a mean over passes. Raises `TrainError` when a gradient is not finite.
    """
    batches = _batches(rows, training, objective, ranks, model.device, reference)
    made = torch.tensor(advantages(_row_kl(batches, len(rows), ranks, model.device)), dtype=torch.float32)
    for batch in batches:
        batch.advantages = made[batch.places].to(model.device)
    sums, norms = _Sums(), []
    for _ in range(training.updates_per_step):
        optimiser.zero_grad()
        for batch in batches:
            _accumulate(model, batch, training, objective, sums)
        _add_gradients(model.parameters(), ranks)
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), training.max_grad_norm)))
        if not torch.isfinite(torch.tensor(norms[-1])):
            raise TrainError(f"gradient norm: expected a finite number, got {norms[-1]}")
        optimiser.step()
    return {**_means(sums, training, ranks, model.device), "grad_norm": sum(norms) / len(norms)}


def _batches(
    rows: Sequence[Row], training: Training, objective: Objective, ranks: Ranks, device: torch.device, reference: Any
) -> list[_Batch]:
    """This rank's share in micro batches of like length, so that little is padding."""
    own = ranks.own(sorted(range(len(rows)), key=lambda place: len(rows[place])))
    tokens = sum(len(row.response) for row in rows)
    batches = []
    for start in range(0, len(own), training.micro_batch):
        places = own[start : start + training.micro_batch]
        group = [rows[place] for place in places]
        by_token = sum(len(row.response) for row in group) / tokens
        weight = by_token if objective.loss_average == "token" else len(group) / len(rows)
        batches.append(_batch(places, group, weight, device, reference, training.sampling.temperature))
    return batches


def _batch(
    places: list[int], group: Sequence[Row], weight: float, device: torch.device, reference: Any, temperature: float
) -> _Batch:
    shape = len(group), max(map(len, group))
    ids, mask, sampled = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool), torch.zeros(shape)
    for i, row in enumerate(group):
        response = slice(len(row.prompt), len(row))
        ids[i, : len(row)] = torch.tensor([*row.prompt, *row.response])
        mask[i, response] = True
        sampled[i, response] = torch.tensor(row.sampled_logprobs)
    ids, mask = ids.to(device), mask.to(device)
    with torch.no_grad():
        referred, _ = token_logprobs(reference, ids, mask, temperature)
    return _Batch(places, ids, mask, sampled.to(device), referred, weight)


def _row_kl(batches: Sequence[_Batch], count: int, ranks: Ranks, device: torch.device) -> list[float]:
    """Each row's KL to the reference in nats, by the sampler's own log-probabilities; the rows of all ranks."""
    kl = torch.zeros(count, dtype=torch.float64, device=device)
    for batch in batches:
        kl[batch.places] = (k3(batch.sampled, batch.reference) * batch.mask).sum(1).double()
    ranks.add(kl)
    found: list[float] = kl.tolist()
    return found


def _accumulate(model: Any, batch: _Batch, training: Training, objective: Objective, sums: _Sums) -> None:
    """Add one micro batch's gradient to the model's, and its figures to `sums`."""
    sampling, entropy_counts = training.sampling, objective.entropy_coefficient > 0
    logprobs, entropies = token_logprobs(
        model, batch.ids, batch.mask, sampling.temperature, entropy_gradient=entropy_counts
    )
    if batch.old is None:
        # On the first pass the policy is the one that sampled. Its own log-probabilities rather than the sampler's,
        # whose cache rounds differently: the ratio begins at exactly 1, whatever sampled.
        batch.old = logprobs.detach()
        sums.sampler_gap += float((batch.old - batch.sampled).abs().sum())
    loss, parts = grpo_loss(
        logprobs,
        batch.old,
        batch.reference,
        entropies,
        batch.advantages,
        batch.mask,
        objective,
        sampling.max_tokens,
    )
    (loss * batch.weight).backward()
    sums.tokens += float(batch.mask.sum())
    sums.entropy += float(entropies.detach().sum())
    sums.kl += float(parts["kl"])
    sums.clipped += float(parts["clipped"])


def _add_gradients(parameters: Iterable[torch.nn.Parameter], ranks: Ranks) -> None:
    for parameter in parameters:
        if parameter.grad is None:  # a rank without a row
            parameter.grad = torch.zeros_like(parameter)
        ranks.add(parameter.grad)


def _means(sums: _Sums, training: Training, ranks: Ranks, device: torch.device) -> dict[str, float]:
    total = torch.tensor(
        [sums.tokens, sums.kl, sums.entropy, sums.clipped, sums.sampler_gap * training.updates_per_step],
        dtype=torch.float64,
        device=device,
    )
    ranks.add(total)
    means = (total[1:] / total[0]).tolist()
    return dict(zip(("kl", "entropy", "clip_share", "sampler_gap"), means, strict=True))
