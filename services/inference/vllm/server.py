"""The server of a `ray.serve.llm` application whose checkpoint is swapped in place: `server_cls` in deploy/serve.

It behaves like the embedded engine's server (services/inference/server/app.py). The deployment's `user_config` names
the checkpoint, and every reply names it as `policy_version`. A request for another checkpoint is answered with 409. An
answer that would not fit into the context is cut to the room that is left. This module needs the extra `vllm` or the
CPU build of docs/gpu.md.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from jinja2 import TemplateError
from numpy.typing import ArrayLike
from ray.llm._internal.serve.core.configs.openai_api_models import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    ErrorInfo,
    ErrorResponse,
)
from ray.serve.llm.deployment import LLMServer
from transformers import AutoConfig
from typing_extensions import override
from vllm.inputs.engine import tokens_input
from vllm.sampling_params import RequestOutputKind

from services.inference.encoding import encode_chat
from services.inference.engines.base import ModelMismatch
from services.inference.engines.model_files import architecture, text_side
from services.inference.server.served import CANARY, CANARY_TOKENS, CanaryFailed, Served
from services.inference.vllm.entropy import mean_entropy, sampled_first
from storage.files.checkpoints import verify

_DEFAULT_MAX_LOGPROBS = 20  # vLLM's default
# The fields of a request that our client sends (services/inference/openai_api.py). Only requests without other fields
# go to vLLM's engine directly.
_CLIENT_FIELDS = frozenset(
    {"model", "policy_version", "messages", "n", "temperature", "top_p", "top_k", "seed", "stop"}
    | {"max_tokens", "max_completion_tokens", "token_logprobs"}
)


class SwappedLLMServer(LLMServer):
    """One replica with one vLLM engine, which starts with the first checkpoint that `user_config` names."""

    @override
    async def start(self) -> None:
        """Called at the end of `__init__`. Starts no engine yet, because only `reconfigure` knows the model."""
        self._served: Served | None = None
        self._configured = False  # whether Serve has sent a checkpoint
        self._limits = {"context": 0, "vocabulary": 0}
        self._tokenizer: Any = None
        self._fixed: Any = None  # see `_fixed`: vLLM reads these only when it starts
        self._swap_lock = asyncio.Lock()
        self._top = int(self._llm_config.engine_kwargs.get("max_logprobs", _DEFAULT_MAX_LOGPROBS))
        self._requests_in_progress = 0
        self._swapping = False
        self._state_changed = asyncio.Condition()

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Swap in a checkpoint after the requests in progress have been answered.

        Serve calls this on every replica. If it raises, Serve reports the exception and restarts the replica with this
        checkpoint.
        """
        served, self._configured = Served.model_validate(user_config), True
        if served == self._served:
            return
        if served.published:
            await asyncio.to_thread(verify, served.folder, served.sha256)
        async with self._swap_lock, self._no_requests():
            previous, self._served = self._served, None
            if previous is None:  # the engine starts with its first checkpoint
                self._llm_config.model_loading_config.model_source = str(served.folder)
                # The engine configuration was made before the model was known.
                self._llm_config.get_engine_config().hf_model_id = str(served.folder)
                # First, because it refuses a chat template that takes too long: vLLM renders it, too, when it starts.
                self._tokenizer, self._fixed = text_side(served.folder)[0], _fixed(served.folder)
                await super().start()
                self._limits = (await self.collective_rpc("limits"))[0]
                engine: Any = self.engine
                engine._oai_serving_chat.render_chat_request = self._render
            else:
                # The files of a training's weights, other than the weights, are those of the model that it began with.
                if served.published and _fixed(served.folder) != self._fixed:
                    raise ModelMismatch(
                        f"{served.folder}: expected the loaded model's configuration, tokenizer, chat template and end "
                        "tokens; at least one of them differs"
                    )
                await self.pause(mode="wait", clear_cache=True)
                await self.collective_rpc("swap_weights", args=(str(served.folder),))
                await self.reset_prefix_cache()
                await self.resume()
            await self._try_canary(served)
            self._served = served

    @asynccontextmanager
    async def _no_requests(self) -> AsyncIterator[None]:
        """Wait until no request is in progress, and hold new requests back during the block."""
        self._swapping = True
        try:
            async with self._state_changed:
                await self._state_changed.wait_for(lambda: self._requests_in_progress == 0)
            yield
        finally:
            self._swapping = False
            async with self._state_changed:
                self._state_changed.notify_all()

    @asynccontextmanager
    async def _no_swap(self) -> AsyncIterator[None]:
        """Wait until no swap is in progress, and count the block as a request in progress."""
        async with self._state_changed:
            await self._state_changed.wait_for(lambda: not self._swapping)
            self._requests_in_progress += 1
        try:
            yield
        finally:
            self._requests_in_progress -= 1  # before the next await, at which a cancellation could end this
            async with self._state_changed:
                self._state_changed.notify_all()

    async def _render(self, request: Any) -> Any:
        """The prompt of vLLM's own chat route, the same as that of our routes. In vLLM's own prompt, a user's control
        token would become its special id, and the folder's template might refuse the chat.
        """
        return request.messages, [tokens_input(self._encode(request))]

    async def _try_canary(self, served: Served) -> None:
        """Raise `CanaryFailed` unless the model's answer to the canary prompt is finite."""
        request = ChatCompletionRequest(
            model=self._llm_config.model_id,
            messages=CANARY,
            temperature=0,
            max_tokens=CANARY_TOKENS,
            logprobs=True,
            top_logprobs=0,
        )
        reply = await self._reply(request)
        if not isinstance(reply, ChatCompletionResponse):
            raise CanaryFailed(f"checkpoint {served.checkpoint}: the canary prompt got {reply.error.message}")
        logprobs = [token.logprob for token in reply.choices[0].logprobs.content]
        # vLLM reports a NaN as -9999.
        if not all(math.isfinite(logprob) and logprob > -9999 for logprob in logprobs):
            raise CanaryFailed(f"checkpoint {served.checkpoint}: the canary prompt gave logits that are not finite")

    @override
    async def check_health(self) -> None:
        if self._configured and self._served is None and not self._swapping:
            raise RuntimeError(f"{self._llm_config.model_id}: no checkpoint is loaded")
        if not self._swapping:
            await super().check_health()

    @override
    async def chat(self, request: Any, raw_request_info: Any = None) -> AsyncIterator[Any]:
        """vLLM's reply, with our additions to the API (services/inference/openai_api.py)."""

        async def answer() -> AsyncIterator[Any]:
            async with self._no_swap():
                try:
                    prompt = self._encode(request) if self._served else []
                except TemplateError as error:
                    yield _error(400, f"messages: the model's chat_template refuses them: {error}")
                    return
                if refusal := self._refusal(request, prompt):
                    yield refusal
                    return
                with_entropy = self._top > 0 and request.temperature in (None, 0, 1)
                if request.model_fields_set <= _CLIENT_FIELDS:
                    yield await self._engine_reply(request, prompt, with_entropy)
                else:
                    yield await self._openai_reply(request, with_entropy, raw_request_info)

        return answer()

    async def chats(self, requests: list[Any]) -> AsyncIterator[Any]:
        """Yield one item: the list of the replies to several chats as JSON, or the first error if any is refused."""

        async def reply_to(request: Any) -> Any:
            [reply] = [item async for item in await self.chat(request)]
            return reply

        replies = await asyncio.gather(*map(reply_to, requests))
        errors = [reply for reply in replies if isinstance(reply, ErrorResponse)]
        yield errors[0] if errors else [reply.model_dump() for reply in replies]

    @override
    async def completions(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Refuse the request: this service supports chats only, because only their replies name the policy_version."""

        async def answer() -> AsyncIterator[Any]:
            yield _error(404, "completions: this service does not have this route; use chat/completions")

        return answer()

    def _refusal(self, request: Any, prompt: list[int]) -> Any:
        """The error for a request that cannot be answered, or None; also cuts its number of tokens to the context."""
        current = self._served.checkpoint if self._served else None
        requested = (request.model_extra or {}).get("policy_version")
        if current is None or requested not in (None, current):
            return _error(409, f"policy_version: {self._llm_config.model_id} holds {current!r}, got {requested!r}")
        if request.stream:
            return _error(400, "stream: expected false, because every reply must name its policy_version; got true")
        if (request.model_extra or {}).get("vocabulary_dropout") is not None:
            return _error(400, "vocabulary_dropout: expected none, because only the embedded engine can do this")
        length, context = len(prompt), self._limits["context"]
        if length >= context:
            return _error(
                400, f"prompt of {length} tokens: expected fewer, because the model's context holds {context}"
            )
        # vLLM itself refuses an answer that might not fit. The embedded engine cuts it, too.
        wanted = request.max_completion_tokens or request.max_tokens or context
        request.max_tokens, request.max_completion_tokens = min(wanted, context - length), None
        return None

    def _encode(self, request: Any) -> list[int]:
        """The token ids of the request's prompt."""
        return encode_chat(self._tokenizer, request.messages)

    async def _engine_reply(self, request: Any, prompt: list[int], with_entropy: bool) -> Any:
        """The reply to a request of our client, sampled by vLLM's engine directly.

        vLLM's own reply would have the text and several objects for each of the `_top` log-probabilities of a token,
        from which only the entropy is computed. That takes this process 0.2 ms per token and allows at most 5,000
        tokens per second.
        """
        engine: Any = self.engine
        defaults = engine._oai_serving_chat.default_sampling_params
        try:
            parameters = request.to_sampling_params(request.max_tokens, defaults)
        except ValueError as error:  # for example, several answers at temperature 0
            return _error(400, str(error))
        parameters.output_kind, parameters.flat_logprobs = RequestOutputKind.FINAL_ONLY, True
        with_tokens = _with_tokens(request)
        parameters.logprobs = self._top if with_entropy else 0 if with_tokens else None
        parameters.detokenize = bool(parameters.stop)  # without stop strings, `_choice` decodes all tokens at once
        request_id = f"chat-{uuid4().hex}"
        async for output in engine._engine_client.generate({"prompt_token_ids": prompt}, parameters, request_id):
            final = output
        choices = []
        for completion in sorted(final.outputs, key=lambda completion: completion.index):
            if completion.finish_reason not in ("stop", "length"):
                return _unfinished(completion)
            choices.append(self._choice(completion, parameters.detokenize, with_entropy, with_tokens))
        tokens = sum(len(completion.token_ids) for completion in final.outputs)
        usage = {"prompt_tokens": len(prompt), "completion_tokens": tokens, "total_tokens": len(prompt) + tokens}
        checkpoint = self._served.checkpoint if self._served else None
        return ChatCompletionResponse(
            id=request_id, model=request.model, choices=choices, usage=usage, policy_version=checkpoint
        )

    def _choice(self, completion: Any, has_text: bool, with_entropy: bool, with_tokens: bool) -> dict[str, Any]:
        ids, flat = list(completion.token_ids), completion.logprobs
        estimate: tuple[float | None, float | None] = (None, None)
        if with_entropy:
            estimate = self._entropy(sampled_first(flat.token_ids, flat.logprobs, self._top))
        text = completion.text if has_text else self._tokenizer.decode(ids, skip_special_tokens=True)
        return {
            "index": completion.index,
            "message": {"role": "assistant", "content": text},
            "finish_reason": completion.finish_reason,
            "token_ids": ids if with_tokens else None,
            # Of a position, the first entry is the sampled token's. Like the embedded engine's log-probabilities, these
            # are before top-k and top-p; but unlike them, they are at temperature 1 (vLLM's `raw_logprobs`).
            "token_logprobs": [flat.logprobs[start] for start in flat.start_indices] if with_tokens else None,
            "completion_tokens": len(ids),
            "mean_entropy": estimate[0],
            "entropy_error": estimate[1],
        }

    async def _openai_reply(self, request: Any, with_entropy: bool, raw_request_info: Any) -> Any:
        """vLLM's own reply with our additions, for requests with further fields such as `logprobs`."""
        requested_top = (request.top_logprobs or 0) if request.logprobs else None
        request.return_token_ids, with_tokens = True, _with_tokens(request)
        if with_entropy or with_tokens:
            request.logprobs, request.top_logprobs = True, max(self._top if with_entropy else 0, requested_top or 0)
        reply = await self._reply(request, raw_request_info)
        if not isinstance(reply, ChatCompletionResponse):
            return reply
        for choice in reply.choices:
            if choice.finish_reason not in ("stop", "length"):
                return _unfinished(choice)
            estimate: tuple[float | None, float | None] = (None, None)
            if with_entropy:
                tokens = choice.logprobs.content
                estimate = self._entropy([[top.logprob for top in token.top_logprobs] for token in tokens])
            choice.message.content = choice.message.content or ""
            choice.completion_tokens = len(choice.token_ids)
            choice.mean_entropy, choice.entropy_error = estimate
            choice.token_logprobs = [token.logprob for token in choice.logprobs.content] if with_tokens else None
            choice.token_ids = choice.token_ids if with_tokens else None
            if requested_top is None:  # only what the caller asked for is left
                choice.logprobs = None
            else:
                for token in choice.logprobs.content:
                    token.top_logprobs = token.top_logprobs[:requested_top]
        reply.prompt_token_ids = None
        reply.policy_version = self._served.checkpoint if self._served else None
        return reply

    def _entropy(self, logprobs: ArrayLike) -> tuple[float, float]:
        """The mean entropy and its error, from vLLM's log-probabilities, which do not include the temperature.

        So it is right for temperature 1, and for 0, where the embedded engine also reports the entropy at 1.
        """
        return mean_entropy(logprobs, self._limits["vocabulary"])

    async def _reply(self, request: Any, raw_request_info: Any = None) -> Any:
        stream = await super().chat(request, raw_request_info)
        reply, *_ = [item async for item in stream]
        return reply


def _error(code: int, message: str) -> ErrorResponse:
    return ErrorResponse(error=ErrorInfo(message=message, type="coevo", code=code))


def _with_tokens(request: Any) -> bool:
    """Whether the reply shall have the sampled tokens and their log-probabilities."""
    return bool((request.model_extra or {}).get("token_logprobs"))


def _unfinished(choice: Any) -> ErrorResponse:
    """The error for a completion that ended for another reason than its own end or its length."""
    return _error(503, f"choice {choice.index} ended with {choice.finish_reason!r}")


def _fixed(folder: Path) -> Any:
    """Everything about a model that a swap cannot change: its architecture, tokenizer, chat template and end tokens."""
    tokenizer, ends = text_side(folder)
    config = architecture(AutoConfig.from_pretrained(folder))
    return config, tokenizer.backend_tokenizer.to_str(), str(tokenizer.chat_template), ends
