"""The part of OpenAI's chat API that the loop speaks, and what we add to it (marked "ours").

`POST /v1/chat/completions` and `GET /v1/models` are vLLM's too. Our servers have `POST /v1/chat/completions/batch`
besides, and say so in `/v1/models`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from core.settings.bounds import Answers, Seed, Temperature, Tokens
from core.settings.training import Sampling
from core.types import FinishReason
from services.inference.engines.base import Completion, Prompt

CHATS_AT_ONCE = 64  # in one request, at most


class Message(BaseModel):
    role: Literal["system", "user", "assistant"]
    content: str = Field(max_length=200_000)


class ChatRequest(BaseModel):
    model: str  # the application's name
    policy_version: str | None = None  # ours: a checkpoint; a replica that holds another refuses with 409
    messages: list[Message] = Field(min_length=1, max_length=64)
    n: Answers = 1
    temperature: Temperature = 1.0
    top_p: float = Field(1.0, gt=0, le=1)
    max_tokens: Tokens = 1024
    seed: Seed = 0
    stop: str | list[str] = Field(default_factory=list)
    logprobs: bool = False

    def prompt(self) -> Prompt:
        """The same as the engines take it."""
        sampling = Sampling(temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_tokens)
        messages = tuple({"role": m.role, "content": m.content} for m in self.messages)
        return Prompt(
            messages, self.seed, self.n, sampling, (self.stop,) if isinstance(self.stop, str) else (*self.stop,)
        )


class TokenLogprob(BaseModel):
    token_id: int  # ours
    logprob: float


class Logprobs(BaseModel):
    content: list[TokenLogprob]


class Choice(BaseModel):
    index: int
    message: Message
    finish_reason: FinishReason
    logprobs: Logprobs | None = None
    completion_tokens: int  # ours
    mean_entropy: float | None  # ours: nats a token
    entropy_error: float | None  # ours: the exact one is within mean_entropy -+ this; 0 where it is the exact one


class Usage(BaseModel):
    completion_tokens: int


class ChatResponse(BaseModel):
    object: Literal["chat.completion"] = "chat.completion"
    model: str
    policy_version: str  # ours: the checkpoint that answered
    choices: list[Choice]
    usage: Usage


class ChatBatchRequest(BaseModel):
    """Ours: several chats in one request, since Serve's part in a request takes as long as a small model's."""

    requests: list[ChatRequest] = Field(min_length=1, max_length=CHATS_AT_ONCE)


class ChatBatchResponse(BaseModel):
    responses: list[ChatResponse]  # one a request, in their order


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    owned_by: Literal["coevo"] = "coevo"
    checkpoint: str  # ours
    sha256: str  # ours: of the checkpoint's manifest
    batches: bool = False  # ours: whether the server has the route for several chats


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


def chat_response(model: str, checkpoint: str, completions: list[Completion], logprobs: bool) -> ChatResponse:
    """What the engine sampled, as the API says it."""
    choices = [
        Choice(
            index=i,
            message=Message(role="assistant", content=c.text),
            finish_reason=c.finish_reason,
            logprobs=_logprobs(c) if logprobs else None,
            completion_tokens=len(c.tokens),
            mean_entropy=c.mean_entropy,
            entropy_error=0.0,
        )
        for i, c in enumerate(completions)
    ]
    usage = Usage(completion_tokens=sum(len(c.tokens) for c in completions))
    return ChatResponse(model=model, policy_version=checkpoint, choices=choices, usage=usage)


def _logprobs(completion: Completion) -> Logprobs:
    pairs = zip(completion.tokens, completion.logprobs, strict=True)
    return Logprobs(content=[TokenLogprob(token_id=token, logprob=logprob) for token, logprob in pairs])
