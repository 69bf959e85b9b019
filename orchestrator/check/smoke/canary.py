"""Compares the log-probabilities of a served model with those of the trainer's forward pass over the same tokens.

A large difference means that the served engine computes another model than the one that was trained: it holds other
weights, has another chat template, or a kernel is wrong on this GPU. The engine computes in its own precision, bfloat16
on a GPU. The forward pass is the embedded trainer's, in float32 on the CPU, also for EasyR1, whose own pass needs its
GPUs. One step changes the weights so little that bfloat16 may hide it; the difference to the weights before the
training shows whether it does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from core.errors import CoevoError
from core.types import Checkpoint, Message
from orchestrator.installation.home import Services
from services.inference.access import key_of
from trainers.base import LARGEST_SAMPLER_GAP

_REPLIES, _TOKENS = 4, 64  # replies to a chat, and the most tokens of each
_PATIENCE_S = 300.0
_TOKEN_ID = "token_id:"  # noqa: S105 (vLLM's prefix of a token's id where it is asked for ids instead of texts)


class CanaryError(CoevoError):
    """The served model did not answer, or not with its tokens and their log-probabilities."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A sampled reply: token ids, and the log-probability of each in nats as the served engine computed it."""

    chat: list[Message]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """The absolute differences of the log-probabilities, in nats a token: `n` tokens, their mean and the largest."""

    n: int
    mean: float
    largest: float

    @property
    def is_small(self) -> bool:
        """Whether the mean is one with which the embedded trainer trains."""
        return self.mean <= LARGEST_SAMPLER_GAP


def ask(services: Services, application: str, checkpoint: Checkpoint, chats: Sequence[list[Message]]) -> list[Reply]:
    """A few replies to each chat by the served checkpoint, sampled at temperature 1. Raises `CanaryError`.

    At this temperature and without top-p, both engines report the same thing: the model's own log-probabilities.
    """
    url = f"{services.endpoint(application)}/chat/completions"
    headers = {"Authorization": f"Bearer {key_of(services.ray_token)}"}
    replies: list[Reply] = []
    with httpx.Client(headers=headers, timeout=_PATIENCE_S, trust_env=False) as http:
        for seed, chat in enumerate(chats):
            body = {
                "model": application,
                "policy_version": checkpoint.id,  # an engine that holds another checkpoint refuses
                "messages": chat,
                "temperature": 1.0,
                "top_p": 1.0,
                "max_tokens": _TOKENS,
                "n": _REPLIES,
                "seed": seed,
                "logprobs": True,
                "return_tokens_as_token_ids": True,  # vLLM's; else it gives texts, and two tokens may have the same
            }
            try:
                response = http.post(url, json=body).raise_for_status()
                replies += read(chat, response.json())
            except httpx.HTTPError as error:
                raise CanaryError(f"{url}: {type(error).__name__}: {error}") from error
    return replies


def read(chat: list[Message], answer: Mapping[str, Any]) -> list[Reply]:
    """The replies of a chat completion. A token has its `token_id` (ours), or a `token` `"token_id:N"` (vLLM's).

    Raises `CanaryError`.
    """
    replies = []
    try:
        for choice in answer["choices"]:
            tokens = choice["logprobs"]["content"]
            ids = [of["token_id"] if "token_id" in of else of["token"].removeprefix(_TOKEN_ID) for of in tokens]
            replies.append(Reply(chat, tuple(map(int, ids)), tuple(float(token["logprob"]) for token in tokens)))
    except (KeyError, TypeError, ValueError) as error:
        raise CanaryError(f"expected the log-probability and the id of every token, got none: {error!r}") from error
    return replies


def compare(folder: Path, replies: Sequence[Reply]) -> Gap:
    """Compare the replies with a forward pass of the model in `folder`. Raises `CanaryError` if there is no token."""
    import torch  # imported here, because it takes seconds to import
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    from services.inference.encoding import encode_chat
    from services.inference.engines.model_files import text_side
    from trainers.local.grpo import token_logprobs

    disable_progress_bar()
    load: Any = AutoModelForCausalLM.from_pretrained
    model, (tokenizer, _) = load(folder, dtype=torch.float32, local_files_only=True).eval(), text_side(folder)
    differences: list[float] = []
    for reply in replies:
        prompt = encode_chat(tokenizer, reply.chat)
        ids = torch.tensor([[*prompt, *reply.tokens]])
        mask = (torch.arange(ids.shape[1]) >= len(prompt))[None]
        with torch.no_grad():
            logprobs, _entropies = token_logprobs(model, ids, mask, temperature=1.0)
        differences += (logprobs[mask] - torch.tensor(reply.logprobs)).abs().tolist()
    if not differences:
        raise CanaryError("the served model's replies have no tokens, so there is nothing to compare")
    return Gap(len(differences), sum(differences) / len(differences), max(differences))
