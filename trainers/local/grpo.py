"""GRPO's arithmetic: log-probabilities of responses, and the clipped surrogate with a KL term.

Source: R-Zero (arXiv 2508.05004), appendix A.1. Shapes: `B` sequences, `T` tokens a sequence, prompt and padding
included. A `mask` (B, T) is True where a response token stands.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor


def token_logprobs(model: Any, ids: Tensor, mask: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probability of each response token and the entropy of the distribution it was drawn from.

    `log pi(ids[b, t] | ids[b, :t])` under `softmax(logits / temperature)`, for a Hugging Face causal model. `ids` are
    (B, T), padded on the right, which under a causal mask nothing real looks at. Both results are (B, T), in nats, 0
    off the mask; only the first has a gradient. Logits, the widest tensor, are computed at response positions only.
    """
    hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    before = mask.roll(-1, dims=1)  # the position that predicts each response token; a response never starts at 0
    logits = model.get_output_embeddings()(hidden[before]).float() / temperature
    log_softmax = torch.log_softmax(logits, dim=-1)
    chosen = log_softmax.gather(-1, ids[mask][:, None])[:, 0]
    with torch.no_grad():
        entropy = -(log_softmax.exp() * log_softmax).sum(-1)
    return _spread(chosen, mask), _spread(entropy, mask)


def grpo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    reference_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    kl_coefficient: float,
    loss_average: Literal["sequence", "token"],
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss to minimise, a scalar, and the sums over tokens of its parts.

    For token t of response i, with r = pi(o_it) / pi_old(o_it) and advantage A_i (R-Zero A.1):

        l_it = -min(r A_i, clip(r, 1 - clip_low, 1 + clip_high) A_i) + kl_coefficient * k3_it
        k3_it = exp(ref - lp) - (ref - lp) - 1,   lp = log pi(o_it), ref = log pi_ref(o_it)

    "sequence" is the paper's average, `1/B sum_i 1/|o_i| sum_t l_it`; "token" gives every token the same weight,
    `sum_it l_it / sum_i |o_i|`. k3 is the unbiased, never negative estimator of KL(pi || pi_ref) (Schulman, 2020).
    Deviation: A.1 writes the KL to pi_old, which at the first update is 0 whatever the policy; like the released code
    and DeepSeekMath, which A.1 cites, this takes it to a fixed reference.

    Log-probabilities (B, T), `advantages` (B,). The parts: "kl" (k3) and "clipped" (tokens whose ratio the clip holds
    back). A batch's loss is the mean of its micro batches' losses, weighed by their sequences or tokens.
    """
    ratio = (logprobs - old_logprobs).exp()
    advantage = advantages[:, None]
    free, clipped = ratio * advantage, ratio.clamp(1 - clip_low, 1 + clip_high) * advantage
    toward = reference_logprobs - logprobs
    k3 = toward.exp() - toward - 1
    token_loss = (kl_coefficient * k3 - torch.minimum(free, clipped)) * mask
    by_token, by_sequence = token_loss.sum() / mask.sum(), (token_loss.sum(1) / mask.sum(1)).mean()
    loss = by_token if loss_average == "token" else by_sequence
    return loss, {"kl": (k3 * mask).sum().detach(), "clipped": ((clipped < free) & mask).sum()}


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    """`values` (N,) at the N places where `mask` is True, 0 elsewhere."""
    return torch.zeros(mask.shape, dtype=values.dtype, device=mask.device).masked_scatter(mask, values)
