"""GRPO's arithmetic: log-probabilities of responses, and the clipped surrogate with its KL and entropy terms.

Source: R-Zero (arXiv 2508.05004), appendix A.1; EVOL-RL (arXiv 2509.15194), eq. 1 and 2; Poly-EPO (arXiv 2604.17654),
appendix A. Shapes: `B` sequences, `T` tokens per sequence, prompt and padding included. A `mask` (B, T) is True at the
response tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from core.methods import Objective
from trainers.base import LARGEST_LOGITS

# Limits of a token's log-ratio and of its k3, in nats: those of verl's core_algos.
LARGEST_LOG_RATIO, LARGEST_K3 = 20.0, 10.0


def token_logprobs(
    model: Any,
    ids: Tensor,
    mask: Tensor,
    temperature: float,
    *,
    entropy_gradient: bool = False,
    largest_logits: int = LARGEST_LOGITS,
) -> tuple[Tensor, Tensor]:
    """Log-probability of each response token and the entropy of the distribution it was drawn from.

    `log pi(ids[b, t] | ids[b, :t])` under `softmax(logits / temperature)`, for a Hugging Face causal model. `ids` are
    (B, T) and padded on the right; under a causal mask no real token attends to the padding. Both results are (B, T),
    in nats, and 0 outside the mask. The entropies are exact over the whole vocabulary, and have a gradient only with
    `entropy_gradient`.

    The logits, the largest tensors, are computed at response positions only. If they are more than `largest_logits`
    numbers, they are computed in parts, and again for the gradients. `torch.nn.functional.linear_cross_entropy` does
    alike, but without the entropy.
    """
    predicting = mask.roll(-1, dims=1)  # the position before each response token; a response never starts at 0
    tokens = ids[mask]
    vocabulary = model.config.get_text_config().vocab_size
    if len(tokens) * vocabulary <= largest_logits:
        chosen, entropy = _chosen(_logits_at(model, ids, predicting), tokens, temperature, entropy_gradient)
    else:
        decoder = decoder_of(model)
        output = decoder(input_ids=ids, use_cache=False)
        hidden, size = output.last_hidden_state[predicting], max(1, largest_logits // vocabulary)

        def of_part(hidden: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
            with _returning(decoder, type(output)({**output, "last_hidden_state": hidden[None]})):
                logits = model.forward(input_ids=tokens[None], use_cache=False).logits[0]
            return _chosen(logits, tokens, temperature, entropy_gradient)

        parts = [
            checkpoint(of_part, *part, use_reentrant=False, preserve_rng_state=False)
            for part in zip(hidden.split(size), tokens.split(size), strict=True)
        ]
        chosen, entropy = (torch.cat(values) for values in zip(*parts, strict=True))
    return _spread(chosen, mask), _spread(entropy, mask)


def _chosen(logits: Tensor, tokens: Tensor, temperature: float, entropy_gradient: bool) -> tuple[Tensor, Tensor]:
    """The log-probabilities of `tokens` (N,) under the `logits` (N, V), and the entropies (N,)."""
    logits = logits.float()
    if temperature != 1:
        logits = logits / temperature
    log_softmax = torch.log_softmax(logits, dim=-1)
    del logits  # frees their memory, which is as large as that of their log-softmax
    chosen = log_softmax.gather(-1, tokens[:, None])[:, 0]
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        # A token of probability 0 adds 0, to the gradient too. `torch.special.entr` has the gradient `-inf * 0` for a
        # probability that is 0 by underflow only.
        impossible = log_softmax.isneginf()
        factor = log_softmax.masked_fill(impossible, 0.0) if impossible.any() else log_softmax
        entropy = -(log_softmax.exp() * factor).sum(-1)
    return chosen, entropy


def _logits_at(model: Any, ids: Tensor, positions: Tensor) -> Tensor:
    """The logits (N, V) of the model's own forward pass at the N positions where `positions` (B, T) is True.

    After its output embedding a model may do more: Cohere's and Granite's scale the logits, Gemma 2's caps them. So the
    model's own forward pass runs, and a hook passes on to the output embedding only the hidden states at `positions`,
    as if they were those of one sequence.
    """

    def keep(_output_embedding: Any, arguments: tuple[Tensor]) -> tuple[Tensor]:
        return (arguments[0][positions][None],)

    hook = model.get_output_embeddings().register_forward_pre_hook(keep)
    try:
        # `forward` itself, because the hooks of a sharded model have already gathered its parameters.
        logits: Tensor = model.forward(input_ids=ids, use_cache=False).logits[0]
    finally:
        hook.remove()
    return logits


def decoder_of(model: Any) -> Any:
    """The part of a Hugging Face causal model that turns tokens into hidden states: its embedding and its layers."""
    embedding = model.get_input_embeddings()
    models = (part for part in model.modules() if isinstance(part, PreTrainedModel))
    *_, innermost = (part for part in models if any(module is embedding for module in part.modules()))
    return innermost  # some models call it directly, and not the model in which it is


@contextmanager
def _returning(decoder: Any, output: Any) -> Iterator[None]:
    """Have the model make logits of a decoder's `output`, as its own forward pass does, without running the decoder."""
    forward = decoder.forward
    decoder.forward = lambda *_args, **_kwargs: output
    try:
        yield
    finally:
        decoder.forward = forward


def k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """The k3 estimator of the KL, `exp(ref - lp) - (ref - lp) - 1`, elementwise (Schulman, 2020; SRT B.1).

    It is an unbiased estimate of KL(pi || pi_ref) if the tokens were drawn from pi, and never negative except for
    rounding. As in verl, which the papers' released code uses (`core_algos.kl_penalty_forward`), a log-ratio is limited
    to 20 on either side, and the estimate to 10 nats; where a limit cuts, the gradient is 0. Otherwise a single token
    whose probability collapsed would overflow.
    """
    log_ratio = _limited(_log_ratio(reference_logprobs, logprobs))
    return (log_ratio.exp() - log_ratio - 1).clamp(max=LARGEST_K3)


def _log_ratio(logprobs: Tensor, others: Tensor) -> Tensor:
    """The difference, elementwise; 0 for a token that is impossible under both, where it would be NaN."""
    return (logprobs - others).masked_fill(logprobs.isneginf() & others.isneginf(), 0.0)


def _limited(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)


def importance_weights(old_logprobs: Tensor, sampled_logprobs: Tensor, cap: float) -> Tensor:
    """`min(pi_old / pi_sampled, cap)` of each token: its weight where another program than the trainer sampled it.

    Such a program computes slightly other probabilities from the same weights, or has older weights. This is truncated
    importance sampling (Ionides, 2008), token by token, as verl and TRL have it.
    """
    return _limited(_log_ratio(old_logprobs, sampled_logprobs)).exp().clamp(max=cap)


def grpo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    reference_logprobs: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    objective: Objective,
    max_tokens: int,
    importance: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss to minimise, a scalar, and sums over tokens of its parts, for the figures.

    For token t of response i, with r = pi(o_it) / pi_old(o_it) and advantage A_i (R-Zero A.1; EVOL-RL eq. 1, 2):

        l_it = -min(r A_i, clip(r, 1 - clip_low, 1 + clip_high) A_i) + kl_coefficient k3_it - entropy_coefficient H_it

    With `importance` (B, T), the first term is multiplied by it (`importance_weights`). The KL term is part of the loss
    only if `kl_in` is "loss". A term whose coefficient is 0 is left out, so it cannot
    spoil the gradient. `log r` is limited to 20 on either side, as in verl (`core_algos.compute_policy_loss_vanilla`),
    and `k3` is limited too. `loss_average` is one of:

    - "sequence", `1/B sum_i 1/|o_i| sum_t l_it`: R-Zero's and EVOL-RL's.
    - "token", `sum_it l_it / sum_i |o_i|`: that of the released code of SRT, TTRL, EVOL-RL and SCRL.
    - "max_length", `1/B sum_i 1/max_tokens sum_t l_it`: Dr. GRPO's, which Poly-EPO uses (A).

    Deviation: R-Zero's A.1 writes the KL to pi_old, which at the first update is 0 whatever the policy. Like R-Zero's
    released code, and DeepSeekMath, which A.1 cites, this computes the KL to a fixed reference.

    Log-probabilities and entropies are (B, T), `advantages` (B,). The parts are "kl" (k3), "clipped" (the number of
    tokens where the clip reduces the objective), and the numbers of tokens whose k3 or whose `log r` was limited,
    "kl_limited" and "ratio_limited". The loss of a batch is the mean of its micro batches' losses, weighted
    by their numbers of sequences, or of tokens for "token". A response without tokens adds 0.
    """
    log_ratio, advantage = _log_ratio(logprobs, old_logprobs), advantages[:, None]
    ratio = _limited(log_ratio).exp()
    unclipped = ratio * advantage
    clipped = ratio.clamp(1 - objective.clip_low, 1 + objective.clip_high) * advantage
    token_loss = -torch.minimum(unclipped, clipped)
    if importance is not None:
        token_loss = token_loss * importance
    kl = k3(logprobs, reference_logprobs)
    if objective.kl_in == "loss" and objective.kl_coefficient:
        token_loss = token_loss + objective.kl_coefficient * kl
    if objective.entropy_coefficient:
        token_loss = token_loss - objective.entropy_coefficient * entropies
    sequence_sums = token_loss.where(mask, 0.0).sum(1)
    if objective.loss_average == "token":
        loss = sequence_sums.sum() / mask.sum().clamp(min=1)
    else:
        lengths = max_tokens if objective.loss_average == "max_length" else mask.sum(1).clamp(min=1)
        loss = (sequence_sums / lengths).mean()
    with torch.no_grad():
        parts = {
            "kl": kl.where(mask, 0.0).sum(),
            "clipped": ((clipped < unclipped) & mask).sum(),
            "kl_limited": ((kl >= LARGEST_K3) & mask).sum(),
            "ratio_limited": ((log_ratio.abs() > LARGEST_LOG_RATIO) & mask).sum(),
        }
    return loss, parts


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    """A tensor of the shape of `mask`, with `values` (N,) at the N positions where `mask` is True and 0 elsewhere."""
    return torch.zeros(mask.shape, dtype=values.dtype, device=mask.device).masked_scatter(mask, values)
