"""The server of a `ray.serve.llm` application whose checkpoint is swapped in place: `server_cls` in deploy/serve.

It speaks as the embedded engine's server does (services/inference/server/app.py): the checkpoint is the deployment's
`user_config`, every reply names it as `policy_version`, whoever asks for another gets 409, an answer is as long as the
context leaves room for. It needs the extra `vllm` or docs/vllm.md's CPU build.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from numpy.typing import ArrayLike
from ray.llm._internal.serve.core.configs.openai_api_models import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    ErrorInfo,
    ErrorResponse,
)
from ray.serve.llm.deployment import LLMServer
from transformers import AutoConfig
from vllm.sampling_params import RequestOutputKind

from core.questions.prompts import solver_messages
from services.inference.engines.base import ModelMismatch
from services.inference.engines.model_files import architecture, text_side
from services.inference.server.served import CANARY, CANARY_TOKENS, CanaryFailed, Served
from services.inference.vllm.entropy import mean_entropy, sampled_first
from storage.checkpoints import verify

_TOP = 20  # vLLM's own default of `max_logprobs`
# What a request of the loop's has, and others may have too (services/inference/openai_api.py).
_OURS = frozenset(
    {"model", "policy_version", "messages", "n", "temperature", "top_p", "seed", "stop"}
    | {"max_tokens", "max_completion_tokens"}
)


class SwappedLLMServer(LLMServer):
    """One replica: one vLLM engine, which begins with the first checkpoint that it is told to hold."""

    _llm_config: Any

    async def start(self) -> None:
        """What `__init__` ends with: no engine yet, since `reconfigure` knows the model."""
        self._served: Served | None = None
        self._told = False  # what to hold
        self._limits = {"context": 0, "vocabulary": 0}
        self._tokenizer: Any = None
        self._fixed: Any = None  # what vLLM read when it began and does not read again
        self._one_swap = asyncio.Lock()
        self._top = int(self._llm_config.engine_kwargs.get("max_logprobs", _TOP))
        self._asking = 0  # requests under way
        self._swapping = False
        self._change = asyncio.Condition()

    async def reconfigure(self, user_config: dict[str, str]) -> None:
        """Swap in a checkpoint once the requests under way are answered. Serve calls it on every replica, and reports
        what it raises; then it starts the replica anew, with this checkpoint."""
        served, self._told = Served.model_validate(user_config), True
        if served == self._served:
            return
        await asyncio.to_thread(verify, served.folder, served.sha256)
        async with self._one_swap, self._exclusive():
            before, self._served = self._served, None
            await (self._begin(served.folder) if before is None else self._swap(served.folder))
            await self._try_out(served)
            self._served = served

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """With no request under way; those that come meanwhile wait."""
        self._swapping = True
        try:
            async with self._change:
                await self._change.wait_for(lambda: self._asking == 0)
            yield
        finally:
            self._swapping = False
            async with self._change:
                self._change.notify_all()

    @asynccontextmanager
    async def _not_exclusive(self) -> AsyncIterator[None]:
        async with self._change:
            await self._change.wait_for(lambda: not self._swapping)
            self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1  # before anything that a cancellation could end
            async with self._change:
                self._change.notify_all()

    async def _begin(self, folder: Path) -> None:
        self._llm_config.model_loading_config.model_source = str(folder)
        self._llm_config.get_engine_config().hf_model_id = str(folder)  # it was made when the model was not known
        await super().start()
        self._limits = (await self.collective_rpc("limits"))[0]
        self._tokenizer, self._fixed = text_side(folder)[0], _fixed(folder)

    async def _swap(self, folder: Path) -> None:
        if _fixed(folder) != self._fixed:
            raise ModelMismatch(
                f"{folder}: its config, tokenizer, chat template or end tokens are not the loaded model's"
            )
        await self.pause(mode="wait", clear_cache=True)
        await self.collective_rpc("swap_weights", args=(str(folder),))
        await self.reset_prefix_cache()
        await self.resume()

    async def _try_out(self, served: Served) -> None:
        request = ChatCompletionRequest(
            model=self._llm_config.model_id,
            messages=solver_messages(CANARY),
            temperature=0,
            max_tokens=CANARY_TOKENS,
            logprobs=True,
            top_logprobs=0,
        )
        reply = await self._reply(request)
        if not isinstance(reply, ChatCompletionResponse):
            raise CanaryFailed(f"checkpoint {served.checkpoint}: the canary prompt got {reply.error.message}")
        logprobs = [token.logprob for token in reply.choices[0].logprobs.content]
        # vLLM says -9999 for what is not a number
        if not all(math.isfinite(logprob) and logprob > -9999 for logprob in logprobs):
            raise CanaryFailed(f"checkpoint {served.checkpoint}: the canary prompt gave logits that are not finite")

    async def check_health(self) -> None:
        if self._told and self._served is None and not self._swapping:
            raise RuntimeError(f"{self._llm_config.model_id}: no checkpoint is loaded")
        if not self._swapping:
            await super().check_health()

    async def chat(self, request: Any, raw_request_info: Any = None) -> AsyncIterator[Any]:
        """vLLM's reply, with what the loop adds to it: services/inference/openai_api.py."""

        async def answer() -> AsyncIterator[Any]:
            async with self._not_exclusive():
                prompt = self._encoded(request) if self._served else []
                yield self._refusal(request, prompt) or await self._answer(request, prompt, raw_request_info)

        return answer()

    async def chats(self, requests: list[Any]) -> AsyncIterator[Any]:
        """The replies to several chats as JSON has them, in one item; or the error of one that is refused."""
        replies = await asyncio.gather(*[self._only(request) for request in requests])
        errors = [reply for reply in replies if isinstance(reply, ErrorResponse)]
        yield errors[0] if errors else [reply.model_dump() for reply in replies]

    async def _only(self, request: Any) -> Any:
        [reply] = [item async for item in await self.chat(request)]
        return reply

    async def completions(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Refused: the loop asks chats, and only they name their policy_version."""

        async def answer() -> AsyncIterator[Any]:
            yield _error(404, "completions: this service answers chat/completions")

        return answer()

    def _refusal(self, request: Any, prompt: list[int]) -> Any:
        now = self._served.checkpoint if self._served else None
        wanted = (request.model_extra or {}).get("policy_version")
        if now is None or wanted not in (None, now):
            return _error(409, f"policy_version {wanted!r}: {self._llm_config.model_id} holds {now!r}")
        if request.stream:
            return _error(400, "stream: expected false, since every reply names its policy_version, got true")
        return self._cut_to_context(request, len(prompt))

    def _encoded(self, request: Any) -> list[int]:
        encoded = self._tokenizer.apply_chat_template(request.messages, add_generation_prompt=True, return_dict=True)
        ids: list[int] = encoded["input_ids"]
        return ids

    def _cut_to_context(self, request: Any, length: int) -> Any:
        """vLLM refuses an answer that might not fit; here, as in the embedded engine, it gets what room there is."""
        context = self._limits["context"]
        if length >= context:
            return _error(400, f"prompt of {length} tokens: the context holds {context}")
        wanted = request.max_completion_tokens or request.max_tokens or context
        request.max_tokens, request.max_completion_tokens = min(wanted, context - length), None
        return None

    async def _answer(self, request: Any, prompt: list[int], raw_request_info: Any) -> Any:
        entropic = self._top > 0 and request.temperature in (None, 0, 1)
        if request.model_fields_set <= _OURS:
            return await self._sampled(request, prompt, entropic)
        return await self._as_openai_has_it(request, entropic, raw_request_info)

    async def _sampled(self, request: Any, prompt: list[int], entropic: bool) -> Any:
        """What the loop asks for, from the engine itself. Of every one of `_top` log-probabilities a token, which only
        their entropy is made of, vLLM's own reply has the text and several objects: .2 ms of this process a token, and
        5,000 tokens a second at most."""
        engine: Any = self.engine
        defaults = engine._oai_serving_chat.default_sampling_params
        try:
            parameters = request.to_sampling_params(request.max_tokens, defaults)
        except ValueError as error:  # such as several answers at temperature 0
            return _error(400, str(error))
        parameters.output_kind, parameters.flat_logprobs = RequestOutputKind.FINAL_ONLY, True
        parameters.logprobs = self._top if entropic else None
        parameters.detokenize = bool(parameters.stop)  # otherwise the text is made here, at once
        name = f"chat-{uuid4().hex}"
        async for output in engine._engine_client.generate({"prompt_token_ids": prompt}, parameters, name):
            final = output
        choices = []
        for completion in sorted(final.outputs, key=lambda completion: completion.index):
            if completion.finish_reason not in ("stop", "length"):
                return _error(503, f"choice {completion.index} ended with {completion.finish_reason!r}")
            choices.append(self._choice(completion, parameters.detokenize, entropic))
        tokens = sum(len(completion.token_ids) for completion in final.outputs)
        usage = {"prompt_tokens": len(prompt), "completion_tokens": tokens, "total_tokens": len(prompt) + tokens}
        checkpoint = self._served.checkpoint if self._served else None
        return ChatCompletionResponse(
            id=name, model=request.model, choices=choices, usage=usage, policy_version=checkpoint
        )

    def _choice(self, completion: Any, has_text: bool, entropic: bool) -> dict[str, Any]:
        ids, flat = list(completion.token_ids), completion.logprobs
        estimate: tuple[float | None, float | None] = (None, None)
        if entropic:
            estimate = self._entropy(sampled_first(flat.token_ids, flat.logprobs, self._top))
        text = completion.text if has_text else self._tokenizer.decode(ids, skip_special_tokens=True)
        return {
            "index": completion.index,
            "message": {"role": "assistant", "content": text},
            "finish_reason": completion.finish_reason,
            "completion_tokens": len(ids),
            "mean_entropy": estimate[0],
            "entropy_error": estimate[1],
        }

    async def _as_openai_has_it(self, request: Any, entropic: bool, raw_request_info: Any) -> Any:
        """For whoever asks for more, log-probabilities among it: vLLM's own reply, with the loop's figures."""
        asked = (request.top_logprobs or 0) if request.logprobs else None
        request.return_token_ids = True
        if entropic:
            request.logprobs, request.top_logprobs = True, max(self._top, asked or 0)
        reply = await self._reply(request, raw_request_info)
        if not isinstance(reply, ChatCompletionResponse):
            return reply
        for choice in reply.choices:
            if choice.finish_reason not in ("stop", "length"):
                return _error(503, f"choice {choice.index} ended with {choice.finish_reason!r}")
            listed = (
                [[top.logprob for top in token.top_logprobs] for token in choice.logprobs.content] if entropic else []
            )
            estimate = self._entropy(listed) if entropic else (None, None)
            choice.message.content = choice.message.content or ""
            choice.completion_tokens = len(choice.token_ids)
            choice.mean_entropy, choice.entropy_error = estimate
            choice.token_ids = None
            _cut_logprobs(choice, asked)
        reply.prompt_token_ids = None
        reply.policy_version = self._served.checkpoint if self._served else None
        return reply

    def _entropy(self, logprobs: ArrayLike) -> tuple[float, float]:
        """Before temperature, which is what vLLM tells: so the policy's own at temperature 1, and at 0 as elsewhere."""
        return mean_entropy(logprobs, self._limits["vocabulary"])

    async def _reply(self, request: Any, raw_request_info: Any = None) -> Any:
        stream = await super().chat(request, raw_request_info)
        reply, *_ = [item async for item in stream]
        return reply


def _error(code: int, message: str) -> ErrorResponse:
    return ErrorResponse(error=ErrorInfo(message=message, type="coevo", code=code))


def _cut_logprobs(choice: Any, asked: int | None) -> None:
    """What the caller asked for is left."""
    if asked is None:
        choice.logprobs = None
        return
    for token in choice.logprobs.content:
        token.top_logprobs = token.top_logprobs[:asked]


def _fixed(folder: Path) -> Any:
    """What a model is besides its weights: its architecture, all that makes text of tokens and tokens of a chat."""
    tokenizer, ends = text_side(folder)
    own = architecture(AutoConfig.from_pretrained(folder))
    return own, tokenizer.backend_tokenizer.to_str(), str(tokenizer.chat_template), ends
