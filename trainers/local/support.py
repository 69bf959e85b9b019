"""Refuses, before a training begins, an architecture whose log-probabilities the trainer would compute wrongly."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from services.inference.engines.decoder import Decoder
from trainers.base import LARGEST_LOGITS, TrainError
from trainers.local.grpo import token_logprobs

# In nats. Rounding in float32 causes gaps of about 1e-5, and a cap of 30 on small logits (Gemma 2) one of 6e-3 if it is
# left out.
LARGEST_GAP = 1e-3

# What the code of an architecture raises that does not fit the sampler or the trainer.
_ERRORS = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)

_LENGTHS = (5, 9)  # of the prompts, in tokens: different, so that the sampler and the trainer pad one of them
_TOKENS = 4  # sampled for each prompt


def refuse_unsupported(model: Any) -> None:
    """Raise `TrainError`, which names the architecture, unless four computations of log-probabilities agree.

    They are the sampler's, with its cache and its padding on the left; the trainer's `token_logprobs`, with its padding
    on the right, at once and in parts; and the model's own forward pass, row by row and without padding. They are
    compared at a few tokens. A model that is sharded already cannot be checked.
    """
    name = type(model).__name__
    try:
        gaps = logprob_gaps(model)
    except _ERRORS as error:
        raise TrainError(
            f"{name}: the embedded trainer cannot train this architecture: {type(error).__name__}: {error}"
        ) from error
    for other, gap in gaps.items():
        if not gap <= LARGEST_GAP:
            raise TrainError(
                f"{name}: the embedded trainer cannot train this architecture: its log-probabilities of a token differ "
                f"from {other} by {gap:.2g} nats, expected at most {LARGEST_GAP:g}"
            )


@torch.no_grad()
def logprob_gaps(model: Any) -> dict[str, float]:
    """The largest difference of a token's log-probability between the trainer and the others, in nats."""
    config = model.config.get_text_config()
    context, needed = config.max_position_embeddings, max(_LENGTHS) + _TOKENS
    if context < needed:
        raise ValueError(f"max_position_embeddings: expected at least {needed}, got {context}")
    first = config.vocab_size // 4  # special tokens are at the beginning or the end of a vocabulary
    prompts = [[first + 7 * i + length for i in range(length)] for length in _LENGTHS]
    prompts = [[token % config.vocab_size for token in prompt] for prompt in prompts]
    responses, sampled = _sample(model, prompts)
    rows = [prompt + response for prompt, response in zip(prompts, responses, strict=True)]
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    mask = torch.zeros_like(ids, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        mask[i, len(prompts[i]) : len(row)] = True
    ids, on_device = ids.to(model.device), mask.to(model.device)
    trained, in_parts = (
        token_logprobs(model, ids, on_device, 1.0, largest_logits=largest)[0].cpu()[mask]
        for largest in (LARGEST_LOGITS, 3 * config.vocab_size)
    )
    own = []  # by the model's own forward pass
    for row in rows:
        alone = torch.tensor([row], device=model.device)
        logits = model.forward(input_ids=alone, use_cache=False).logits[0, :-1].float()
        logprobs = torch.log_softmax(logits, -1).gather(-1, alone[0, 1:, None])[:, 0].cpu()
        own.append(logprobs[-_TOKENS:])
    return {
        "those that it computes in parts": float((trained - in_parts).abs().max()),
        "those of the model's own forward pass": float((trained - torch.cat(own)).abs().max()),
        "those of the sampler": float((trained - torch.cat(sampled)).abs().max()),
    }


def _sample(model: Any, prompts: list[list[int]]) -> tuple[list[list[int]], list[Tensor]]:
    """The most likely answers of the sampler, and their log-probabilities."""
    decoder, tokens, logprobs = Decoder(model), list[Tensor](), list[Tensor]()
    logits = decoder.prefill(prompts, torch.arange(len(prompts)))
    for step in range(_TOKENS):
        logprob, token = torch.log_softmax(logits, -1).max(-1)
        tokens.append(token)
        logprobs.append(logprob)
        if step < _TOKENS - 1:
            logits = decoder.step(token)
    return torch.stack(tokens, 1).tolist(), list(torch.stack(logprobs, 1).cpu())
