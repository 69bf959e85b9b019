"""One step's update of the policy: micro batches, summed gradients, clipping, AdamW."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from core.methods import Objective
from core.settings.training import Training
from trainers.base import TrainError
from trainers.local.grpo import grpo_loss, k3
from trainers.local.ranks import Ranks
from trainers.local.sharding import full, is_sharded, logprobs_of

# EasyR1, with which R-Zero was trained, takes torch's (0.9, 0.999) (verl/workers/actor/config.py). A job has a dozen or
# two steps here, and a second moment that remembers a thousand is then little but its bias correction; the demo's
# learning rates were found with (0.9, 0.99).
BETAS = (0.9, 0.99)
_TOKEN_KL_LIMIT = 10.0  # nats


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

    places: list[int]  # of its rows in the step; none in a batch that only keeps step with the other ranks
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
    rows_per_update: int | None = None,
) -> dict[str, float]:
    """Do `training.updates_per_step` passes over the step's `rows`, an optimiser step for each mini-batch of them.

    A mini-batch is `rows_per_update` rows as they come, whole groups that is, or all. The policy whose ratio is clipped
    is the one before the first optimiser step (`pi_old`).

    `advantages` makes one for each row of the rows' KL to the reference under the policy that sampled them, in nats a
    response: the sum of k3 over its tokens, each cut off at 10. An objective with its KL in the reward takes it off the
    reward (SRT B.1). B.1 prints k3 of the whole response; a sum over tokens, and the limit, are its released code's
    (verl), to which B.1 refers.

    Every rank gets all rows and takes its share; the gradients are summed, so that any number of workers and any
    micro batch give one worker's result up to rounding, whether the models are sharded, both of them, or not. Rows
    without advantage stay in: they hold the policy to the reference, and they count in the loss's mean (R-Zero A.1).

    Returns means over tokens and passes: "kl" (k3, to the reference), "entropy" (nats), "clip_share", "sampler_gap"
    (absolute difference to the sampler's log-probabilities, before the first pass), and "grad_norm" before clipping,
    a mean over passes. Raises `TrainError` when a gradient is not finite.
    """
    size = rows_per_update or len(rows)
    parts = [range(start, min(start + size, len(rows))) for start in range(0, len(rows), size)]
    mini_batches = [_batches(rows, part, training, objective, ranks, model.device, reference) for part in parts]
    own = [batch for batches in mini_batches for batch in batches]
    made = torch.tensor(advantages(_row_kl(own, len(rows), ranks, model.device)), dtype=torch.float32)
    sums, norms = _Sums(), []
    for batch in own:
        batch.advantages = made[batch.places].to(model.device)
        if len(mini_batches) > 1:  # else the first pass itself is made by the policy before any update
            with torch.no_grad():
                _set_old(batch, logprobs_of(model, batch.ids, batch.mask, training.sampling.temperature)[0], sums)
    for _ in range(training.updates_per_step):
        for batches in mini_batches:
            optimiser.zero_grad()
            for batch in batches:
                _accumulate(model, batch, training, objective, sums)
            if not is_sharded(model):  # whose gradients the backward pass has summed
                _add_gradients(model.parameters(), ranks)
            norms.append(_clip(list(model.parameters()), training.max_grad_norm))
            if not math.isfinite(norms[-1]):
                raise TrainError(f"gradient norm: expected a finite number, got {norms[-1]}")
            optimiser.step()
    return {**_means(sums, training, ranks, model.device), "grad_norm": sum(norms) / len(norms)}


def _batches(
    rows: Sequence[Row],
    part: range,
    training: Training,
    objective: Objective,
    ranks: Ranks,
    device: torch.device,
    reference: Any,
) -> list[_Batch]:
    """This rank's share of a mini-batch in micro batches of like length, so that little is padding."""
    own = ranks.own(sorted(part, key=lambda i: len(rows[i])))
    tokens = sum(len(rows[i].response) for i in part)
    batches = []
    for start in range(0, len(own), training.micro_batch):
        places = own[start : start + training.micro_batch]
        group = [rows[i] for i in places]
        by_token = sum(len(row.response) for row in group) / tokens
        weight = by_token if objective.loss_average == "token" else len(group) / len(part)
        batches.append(_batch(places, group, weight, device, reference, training.sampling.temperature))
    if is_sharded(reference):  # ranks compute in step: the first has the most rows, the others fill up
        most = -(-len(part[:: ranks.size]) // training.micro_batch)
        idle = most - len(batches)
        nothing = Row([0], [], [])
        batches += [_batch([], [nothing], 0.0, device, reference, training.sampling.temperature) for _ in range(idle)]
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
        referred, _ = logprobs_of(reference, ids, mask, temperature)
    return _Batch(places, ids, mask, sampled.to(device), referred, weight)


def _row_kl(batches: Sequence[_Batch], count: int, ranks: Ranks, device: torch.device) -> list[float]:
    """Each row's KL to the reference in nats, by the sampler's own log-probabilities; the rows of all ranks.

    In double precision, where k3 does not cancel: it is what a group that agrees in all else is told apart by.
    """
    kl = torch.zeros(count, dtype=torch.float64, device=device)
    for batch in batches:
        tokens = k3(batch.sampled.double(), batch.reference.double()).clamp(max=_TOKEN_KL_LIMIT)
        kl[batch.places] = (tokens * batch.mask).sum(1)
    ranks.add(kl)
    values: list[float] = kl.tolist()
    return values


def _accumulate(model: Any, batch: _Batch, training: Training, objective: Objective, sums: _Sums) -> None:
    """Add one micro batch's gradient to the model's, and its figures to `sums`."""
    sampling, entropy_counts = training.sampling, objective.entropy_coefficient > 0
    logprobs, entropies = logprobs_of(
        model, batch.ids, batch.mask, sampling.temperature, entropy_gradient=entropy_counts
    )
    if not batch.places:
        logprobs.sum().backward()  # of no token: every gradient is 0
        return
    old = _set_old(batch, logprobs, sums) if batch.old is None else batch.old
    loss, parts = grpo_loss(
        logprobs,
        old,
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


def _set_old(batch: _Batch, logprobs: Tensor, sums: _Sums) -> Tensor:
    """Before any update the policy is the one that sampled. Its own log-probabilities rather than the sampler's, whose
    cache rounds differently: the ratio begins at exactly 1, whatever sampled."""
    old = batch.old = logprobs.detach()
    sums.sampler_gap += float((old - batch.sampled).abs().sum())
    return old


def _add_gradients(parameters: Iterable[torch.nn.Parameter], ranks: Ranks) -> None:
    gradients = []
    for parameter in parameters:
        if parameter.grad is None:  # a rank without a row
            parameter.grad = torch.zeros_like(parameter)
        gradients.append(parameter.grad)
    ranks.add(*gradients)


def _clip(parameters: Sequence[torch.nn.Parameter], limit: float) -> float:
    """Hold the norm of all gradients together, over all ranks' shares, down to `limit`; what it was before."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = full(torch.nn.utils.get_total_norm(gradients))
    torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return float(norm)


def _means(sums: _Sums, training: Training, ranks: Ranks, device: torch.device) -> dict[str, float]:
    total = torch.tensor(
        [sums.tokens, sums.kl, sums.entropy, sums.clipped, sums.sampler_gap * training.updates_per_step],
        dtype=torch.float64,
        device=device,
    )
    ranks.add(total)
    means = (total[1:] / total[0]).tolist()
    return dict(zip(("kl", "entropy", "clip_share", "sampler_gap"), means, strict=True))
