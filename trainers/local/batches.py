"""The micro batches of an update: rows of similar length, padded, with the reference's log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from core.methods import Objective
from core.settings.training import Training
from trainers.local.lora import without_adapters
from trainers.local.ranks import Ranks
from trainers.local.sharding import is_sharded, logprobs_of


@dataclass(frozen=True, slots=True)
class Row:
    """A rollout to train on, as token ids, and the log-probabilities of the response that the sampler computed."""

    prompt: Sequence[int]
    response: Sequence[int]
    sampled_logprobs: Sequence[float]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.response)


@dataclass(slots=True)
class Batch:
    """A micro batch of `B` rows padded to `T` tokens."""

    indices: list[int]  # of the rows in the step; empty for a batch that only keeps this rank in step with the others
    ids: Tensor  # (B, T)
    mask: Tensor  # (B, T), True at response tokens
    sampled: Tensor  # (B, T), log-probabilities by the sampler
    reference: Tensor  # (B, T), log-probabilities by the reference
    weight: float  # the batch's share of the mean over the mini-batch
    advantages: Tensor = field(default_factory=lambda: torch.empty(0))  # (B,)
    old: Tensor | None = None  # (B, T), log-probabilities by the policy before the first optimiser step
    importance: Tensor | None = None  # (B, T), weights of the tokens


def micro_batches(
    rows: Sequence[Row],
    row_range: range,
    training: Training,
    objective: Objective,
    ranks: Ranks,
    device: torch.device,
    reference: Any,
    tokens_per_micro_batch: int | None,
) -> list[Batch]:
    """This rank's share of a mini-batch, in micro batches of rows of similar length, so that there is little padding.

    `row_range` are the indices of the mini-batch's rows.
    """
    by_length = sorted(row_range, key=lambda i: len(rows[i]))
    split = partial(split_rows, [len(row) for row in rows], training.micro_batch, tokens_per_micro_batch)
    tokens = sum(len(rows[i].response) for i in row_range)
    batches = []
    for indices in split(ranks.own(by_length)):
        batch_rows = [rows[i] for i in indices]
        token_share = sum(len(row.response) for row in batch_rows) / tokens
        weight = token_share if objective.loss_average == "token" else len(batch_rows) / len(row_range)
        batches.append(_make_batch(indices, batch_rows, weight, device, reference, training.sampling.temperature))
    if is_sharded(reference):
        # Sharded models compute in step, so all ranks need as many batches as the rank with the most.
        most = max(len(split(by_length[rank :: ranks.size])) for rank in range(ranks.size))
        missing = most - len(batches)
        empty_row = Row([0], [], [])
        batches += [
            _make_batch([], [empty_row], 0.0, device, reference, training.sampling.temperature) for _ in range(missing)
        ]
    return batches


def split_rows(
    lengths: Sequence[int], most_rows: int, most_tokens: int | None, by_length: Sequence[int]
) -> list[list[int]]:
    """The indices `by_length`, which are in the order of the rows' `lengths`, in parts of adjacent ones.

    A part has `most_rows` rows, or, with `most_tokens`, as many as have at most so many tokens when all are padded to
    the longest, the last; but at least one.
    """
    parts = list[list[int]]()
    for i in by_length:
        size = len(parts[-1]) + 1 if parts else 0
        if size and (size <= most_rows if most_tokens is None else size * lengths[i] <= most_tokens):
            parts[-1].append(i)
        else:
            parts.append([i])
    return parts


def _make_batch(
    indices: list[int], rows: Sequence[Row], weight: float, device: torch.device, reference: Any, temperature: float
) -> Batch:
    shape = len(rows), max(map(len, rows))
    ids, mask, sampled = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool), torch.zeros(shape)
    for i, row in enumerate(rows):
        response = slice(len(row.prompt), len(row))
        ids[i, : len(row)] = torch.tensor([*row.prompt, *row.response])
        mask[i, response] = True
        sampled[i, response] = torch.tensor(row.sampled_logprobs)
    ids, mask = ids.to(device), mask.to(device)
    with torch.no_grad(), without_adapters(reference):
        reference_logprobs, _ = logprobs_of(reference, ids, mask, temperature)
    return Batch(indices, ids, mask, sampled.to(device), reference_logprobs, weight)
