"""The part of OpenAI's chat API that coevo uses, and our additions to it (marked "ours").

vLLM has `POST /v1/chat/completions` and `GET /v1/models`, too. Our servers also have the batch route,
`POST /v1/chat/completions/batch`, and report that in `/v1/models`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticKnownError

from core.settings.training import Sampling
from core.texts.unicode import well_formed
from core.types import FinishReason
from core.validation.bounds import Answers, Positive, Seed, Temperature, Tokens
from services.inference.engines.base import Completion, Prompt, VocabularyDropout

CHATS_AT_ONCE = 64  # the most chats in one request


# Options of OpenAI's API and of vLLM's with the values that change no answer. They may be sent, and no others.
_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ("stream", "echo", "ignore_eos", "store", "include_stop_str_in_output", "use_beam_search"), (False,)
    ),
    **dict.fromkeys(("frequency_penalty", "presence_penalty", "min_p", "min_tokens", "top_logprobs"), (0,)),
    **dict.fromkeys(("repetition_penalty", "length_penalty", "best_of"), (1,)),
    **dict.fromkeys(("add_generation_prompt", "skip_special_tokens", "parallel_tool_calls"), (True,)),
    **dict.fromkeys(("tools", "stop_token_ids", "bad_words"), ([],)),
    **{"logit_bias": ({},), "top_k": (-1, 0), "tool_choice": ("none", "auto"), "service_tier": ("auto", "default")},
    **{
        "response_format": ({"type": "text"},),
        "modalities": (["text"],),
        "stream_options": ({"include_usage": False},),
    },
}
# Token ids are sent in any case.
_ABOUT_THE_CALLER = frozenset(
    {"user", "metadata", "safety_identifier", "prompt_cache_key", "return_tokens_as_token_ids"}
)


def _refuse_half_characters(text: str) -> str:
    """Pydantic refuses a lone surrogate in a text, but not in a text that may also be something else."""
    if text != well_formed(text):
        raise PydanticKnownError("string_unicode")
    return text


_Text = Annotated[str, AfterValidator(_refuse_half_characters)]
_Stop = Annotated[_Text, Field(min_length=1)]  # an empty text would end every answer before its first token


class Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant"]  # developer: OpenAI's newer name of system
    content: str = Field(max_length=200_000)

    @field_validator("content", mode="before")
    @classmethod
    def _joined(cls, content: Any) -> Any:
        """The text of a content in parts, if all are texts."""
        if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
            texts = [part.get("text") for part in content]
            return "".join(texts) if all(isinstance(text, str) for text in texts) else content
        return content


class ChatRequest(BaseModel):
    """One chat. An option that is null counts as left out, as in OpenAI's API. One that would change the answers and is
    not among these fields is refused, also `stream`, because every reply names its `policy_version`."""

    model_config = ConfigDict(extra="forbid")

    model: _Text  # the application's name
    policy_version: _Text | None = None  # ours: a checkpoint; a replica that holds another refuses with 409
    messages: list[Message] = Field(min_length=1, max_length=64)
    n: Answers = 1
    temperature: Temperature = 1.0
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: Positive | None = None  # not in OpenAI's API, but in vLLM's
    max_tokens: Tokens = 1024
    max_completion_tokens: Tokens | None = None  # OpenAI's newer name of max_tokens, which it replaces
    seed: Seed = 0
    stop: _Stop | list[_Stop] = Field(default_factory=list)
    logprobs: bool = False
    token_logprobs: bool = False  # ours: the reply has `token_ids` and `token_logprobs`
    vocabulary_dropout: VocabularyDropout | None = None  # ours: the embedded engine's only

    @model_validator(mode="before")
    @classmethod
    def _without_options_that_change_nothing(cls, options: Any) -> Any:
        if not isinstance(options, dict):
            return options
        return {
            name: value
            for name, value in options.items()
            if value is not None and name not in _ABOUT_THE_CALLER and value not in _WITHOUT_EFFECT.get(name, ())
        }

    def prompt(self) -> Prompt:
        """This request as a `Prompt` for an engine."""
        sampling = Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            max_tokens=self.max_completion_tokens or self.max_tokens,
        )
        roles = {"developer": "system"}
        messages = tuple(
            {"role": roles.get(message.role, message.role), "content": message.content} for message in self.messages
        )
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        return Prompt(messages, self.seed, self.n, sampling, stop, self.vocabulary_dropout)


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
    # Ours: what `logprobs` says as two lists, which are half as long: the ids as sampled, with the end token, and their
    # log-probabilities. JSON keeps a number exactly.
    token_ids: list[int] | None = None
    token_logprobs: list[float] | None = None
    completion_tokens: int  # ours
    mean_entropy: float | None  # ours: nats per token
    entropy_error: float | None  # ours: the exact mean is within mean_entropy -+ entropy_error; 0 if it is exact


class Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int


class ChatResponse(BaseModel):
    object: Literal["chat.completion"] = "chat.completion"
    model: str
    policy_version: str  # ours: the checkpoint that answered
    choices: list[Choice]
    usage: Usage


class ChatBatchRequest(BaseModel):
    """Ours: several chats in one request, because Serve's overhead per request is as long as a small model's answer."""

    requests: list[ChatRequest] = Field(min_length=1, max_length=CHATS_AT_ONCE)


class ChatBatchResponse(BaseModel):
    responses: list[ChatResponse]  # one per request, in their order


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    owned_by: Literal["coevo"] = "coevo"
    checkpoint: str  # ours
    sha256: str  # ours: of the checkpoint's manifest
    batches: bool = False  # ours: whether the server has the batch route


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


def chat_response(
    model: str, checkpoint: str, completions: list[Completion], logprobs: bool, token_logprobs: bool = False
) -> ChatResponse:
    """The response for an engine's completions, whose entropies must be exact."""
    choices = [
        Choice(
            index=index,
            message=Message(role="assistant", content=completion.text),
            finish_reason=completion.finish_reason,
            logprobs=Logprobs(
                content=[
                    TokenLogprob(token_id=token, logprob=logprob)
                    for token, logprob in zip(completion.tokens, completion.logprobs, strict=True)
                ]
            )
            if logprobs
            else None,
            token_ids=list(completion.tokens) if token_logprobs else None,
            token_logprobs=list(completion.logprobs) if token_logprobs else None,
            completion_tokens=len(completion.tokens),
            mean_entropy=completion.mean_entropy,
            entropy_error=0.0,
        )
        for index, completion in enumerate(completions)
    ]
    reply_tokens = sum(len(completion.tokens) for completion in completions)
    usage = Usage(prompt_tokens=completions[0].prompt_tokens, completion_tokens=reply_tokens)
    return ChatResponse(model=model, policy_version=checkpoint, choices=choices, usage=usage)
