"""GRPO's arithmetic: log-probabilities of responses, and the clipped surrogate with its KL and entropy terms.

Source: R-Zero (arXiv 2508.05004), appendix A.1; EVOL-RL (arXiv 2509.15194), eq. 1 and 2; Poly-EPO (arXiv 2604.17654),
appendix A. Shapes: `B` sequences, `T` tokens a sequence, prompt and padding included. A `mask` (B, T) is True where a
response token stands.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from core.methods import Objective


def token_logprobs(
    model: Any, ids: Tensor, mask: Tensor, temperature: float, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probability of each response token and the entropy of the distribution it was drawn from.

    `log pi(ids[b, t] | ids[b, :t])` under `softmax(logits / temperature)`, for a Hugging Face causal model. `ids` are
    (B, T), padded on the right, which under a causal mask nothing real looks at. Both results are (B, T), in nats, 0
    off the mask; the entropies, exact over the whole vocabulary, have a gradient only where it is asked for. Logits,
    the widest tensor, are computed at response positions only.
    """
    hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    before = mask.roll(-1, dims=1)  # the position that predicts each response token; a response never starts at 0
    # In one expression: a name would keep the logits, as large as what is made of them.
    log_softmax = torch.log_softmax(model.get_output_embeddings()(hidden[before]).float() / temperature, dim=-1)
    chosen = log_softmax.gather(-1, ids[mask][:, None])[:, 0]
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy = -(log_softmax.exp() * log_softmax).sum(-1)
    return _spread(chosen, mask), _spread(entropy, mask)


def k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """`exp(ref - lp) - (ref - lp) - 1`, of any shape: unbiased for KL(pi || pi_ref), where the tokens were drawn from
    pi, and never negative but for rounding (Schulman, 2020; SRT B.1)."""
    toward = reference_logprobs - logprobs
    return toward.exp() - toward - 1


def grpo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    reference_logprobs: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    objective: Objective,
    max_tokens: int,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss to minimise, a scalar, and the sums over tokens of its parts.

    For token t of response i, with r = pi(o_it) / pi_old(o_it) and advantage A_i (R-Zero A.1; EVOL-RL eq. 1, 2):

        l_it = -min(r A_i, clip(r, 1 - clip_low, 1 + clip_high) A_i) + kl_coefficient k3_it - entropy_coefficient H_it

    The KL term is here only where `kl_in` is "loss". `loss_average`: "sequence", `1/B sum_i 1/|o_i| sum_t l_it`, is
    R-Zero's and EVOL-RL's; "token", `sum_it l_it / sum_i |o_i|`, that of the released codes; "max_length",
    `1/B sum_i 1/max_tokens sum_t l_it`, Dr. GRPO's, which Poly-EPO takes (A).
    Deviation: R-Zero's A.1 writes the KL to pi_old, which at the first update is 0 whatever the policy; like its
    released code and DeepSeekMath, which A.1 cites, this takes it to a fixed reference.

    Log-probabilities and entropies (B, T), `advantages` (B,). The parts: "kl" (k3) and "clipped" (tokens whose ratio
    the clip holds back). A batch's loss is the mean of its micro batches' losses, weighed by their sequences or tokens.
    """
    ratio = (logprobs - old_logprobs).exp()
    advantage = advantages[:, None]
    free = ratio * advantage
    clipped = ratio.clamp(1 - objective.clip_low, 1 + objective.clip_high) * advantage
    kl = k3(logprobs, reference_logprobs)
    kl_coefficient = objective.kl_coefficient if objective.kl_in == "loss" else 0.0
    token_loss = kl_coefficient * kl - torch.minimum(free, clipped) - objective.entropy_coefficient * entropies
    sums = (token_loss * mask).sum(1)
    if objective.loss_average == "token":
        loss = sums.sum() / mask.sum()
    else:
        loss = (sums / (max_tokens if objective.loss_average == "max_length" else mask.sum(1))).mean()
    return loss, {"kl": (kl * mask).sum().detach(), "clipped": ((clipped < free) & mask).sum()}


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    """`values` (N,) at the N places where `mask` is True, 0 elsewhere."""
    return torch.zeros(mask.shape, dtype=values.dtype, device=mask.device).masked_scatter(mask, values)
