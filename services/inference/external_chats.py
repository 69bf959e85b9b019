"""Asks OpenAI-compatible services for chat completions, as these services differ, and reads their replies.

It is the only reader of such replies: of evaluated models, of judges, and of the models that tell strategies apart.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from core.asking.service import Service
from core.types import FinishReason, Message, Spent
from services.inference.client import InferenceError
from services.inference.external import RequestRefused, post

_MOST_TOKENS = 2**31 - 1  # that a service may say one request took
_CUT_OFF = ("length", "model_length", "max_tokens")  # the second is Mistral's, the third is Anthropic's
# A filter refused the question: Azure's words and code, and those of OpenAI's reasoning models.
_FILTERED = re.compile(r"content_filter|content management policy|content_policy|invalid_prompt|usage polic", re.I)
_logger = logging.getLogger(__name__)
# What each service, by its address and model, has refused: such requests are not sent again.
_refused: defaultdict[tuple[str, str], set[str]] = defaultdict(set)


@dataclass(frozen=True, slots=True)
class ChatReply:
    """One completion. `text` is empty if there is none, as when a reply consists of reasoning alone.

    The numbers of tokens are 0 if the service does not report possible ones.
    """

    text: str
    finish_reason: FinishReason
    filtered: bool  # a filter of the service cut it off, or refused the question
    prompt_tokens: int
    tokens: int

    @property
    def spent(self) -> Spent:
        return Spent(1, self.prompt_tokens, self.tokens)


async def ask_chat(
    http: aiohttp.ClientSession,
    service: Service,
    messages: Sequence[Message],
    max_tokens: int,
    *,
    seed: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    any_temperature: bool = False,
) -> ChatReply:
    """Send one chat, and read the reply. Options that are None are not sent.

    A service may call the limit `max_completion_tokens`, and may refuse options. It is asked again without a seed,
    without an option that has the default of OpenAI's API anyway, and without a temperature if `any_temperature` will
    do. A question that its filter refuses has an empty reply. Raises `RequestRefused` if it refuses anything else, and
    what `post` and `read_chat` raise.
    """
    options = {"seed": seed, "temperature": temperature, "top_p": top_p, "top_k": top_k}
    options = {name: value for name, value in options.items() if value is not None}
    dispensable = {"seed"} | {name for name in ("temperature", "top_p") if options.get(name) == 1}
    dispensable |= {"temperature"} if any_temperature else set()
    refused = _refused[service.url, service.model]
    while True:
        left_out = refused & dispensable
        limit = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
        body = {
            "model": service.model,
            "messages": list(messages),
            limit: max_tokens,
            **{name: value for name, value in options.items() if name not in left_out},
        }
        try:
            return read_chat(service, await post(http, service, "chat/completions", body))
        except RequestRefused as error:
            if _FILTERED.search(str(error)):
                return ChatReply("", "stop", filtered=True, prompt_tokens=0, tokens=0)
            named = {name for name in dispensable & body.keys() if re.search(rf"\b{name}\b", str(error))}
            if limit == "max_tokens" and "max_completion_tokens" in str(error):
                named.add("max_tokens")
            if not named:
                raise
            if new := named - refused:
                _logger.warning("%s: %s refuses %s", service.url, service.model, " and ".join(sorted(new)))
            refused |= named


def read_chat(service: Service, reply: Any) -> ChatReply:
    """A reply in the format of OpenAI's API, whose optional fields may be missing or null.

    Of a content in parts, the texts count. Reasoning is no part of the text. Raises `InferenceError`.
    """
    try:
        choice = reply["choices"][0]
        content = choice["message"].get("content")
        parts = [{"text": content or ""}] if content is None or isinstance(content, str) else content
        texts = [part.get("text") for part in parts if part.get("type") in (None, "text", "output_text")]
        reason, usage = choice.get("finish_reason"), reply.get("usage")
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise InferenceError(f"{service.url}: expected a chat completion, got {str(reply)[:200]!r}") from error
    counts = usage if isinstance(usage, Mapping) else {}
    return ChatReply(
        text="".join(text for text in texts if isinstance(text, str)),
        finish_reason="length" if reason in _CUT_OFF else "stop",
        filtered=reason == "content_filter",
        prompt_tokens=_count(counts.get("prompt_tokens")),
        tokens=_count(counts.get("completion_tokens")),
    )


def _count(tokens: object) -> int:
    return tokens if type(tokens) is int and 0 < tokens <= _MOST_TOKENS else 0
