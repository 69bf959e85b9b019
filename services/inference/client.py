"""The client of the inference services: many prompts at once, lost replicas retried, every reply's maker checked."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import aiohttp

from core.errors import CoevoError
from core.types import FinishReason
from services.inference import access
from services.inference.engine import Prompt
from services.inference.openai_api import ChatResponse

# Answers that pass by themselves: a replica was lost or is being started, or has not swapped its weights yet.
PASSING = frozenset({408, 409, 429, 500, 502, 503, 504})


class InferenceError(CoevoError):
    """A service refused a request, or did not answer it before the deadline."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One completion and the checkpoint that made it."""

    text: str
    tokens: int
    finish_reason: FinishReason
    mean_entropy: float | None
    entropy_error: float | None
    checkpoint: str
    seed: int


@dataclass(frozen=True, slots=True)
class InferenceClient:
    """Talks to one of our own applications, whatever engine is behind it. `url` ends in /v1."""

    url: str
    model: str  # the application's name
    patience_s: float = 120.0  # spent between attempts, before a request is given up; an attempt takes what it takes
    concurrency: int = 256

    def generate(self, prompts: Sequence[Prompt], checkpoint: str) -> list[list[Reply]]:
        """Sample every prompt from `checkpoint`; out[i][j] is drawn with prompts[i].seed + j.

        A request is tried again as long as its failure may pass; a reply by another checkpoint is never taken.
        Raises `InferenceError`. Blocks: call it outside an event loop.
        """
        try:
            return asyncio.run(self._generate_alone(prompts, checkpoint))
        except ExceptionGroup as group:  # the first failure ended the rest
            raise group.exceptions[0] from None

    def generate_in_turn(
        self, batches: Iterable[Sequence[Prompt]], checkpoint: str, at_once: int
    ) -> Generator[list[list[Reply]], None, None]:
        """What `generate` gives for each batch, in order, with `at_once` of them under way.

        To be closed (`contextlib.closing`): what is under way is given up then, as it is when a batch fails.
        """
        loop, under_way = asyncio.new_event_loop(), deque[Future[list[list[Reply]]]]()
        thread = threading.Thread(target=loop.run_forever, name="inference", daemon=True)
        thread.start()
        http = asyncio.run_coroutine_threadsafe(_session(), loop).result()
        try:
            for batch in batches:
                under_way.append(asyncio.run_coroutine_threadsafe(self._generate(http, batch, checkpoint), loop))
                if len(under_way) == at_once:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        except ExceptionGroup as group:  # the first failure ended the rest
            raise group.exceptions[0] from None
        finally:
            asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result()
            asyncio.run_coroutine_threadsafe(http.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _generate_alone(self, prompts: Sequence[Prompt], checkpoint: str) -> list[list[Reply]]:
        async with await _session() as http:
            return await self._generate(http, prompts, checkpoint)

    async def _generate(
        self, http: aiohttp.ClientSession, prompts: Sequence[Prompt], checkpoint: str
    ) -> list[list[Reply]]:
        slots = asyncio.Semaphore(self.concurrency)

        async def one(prompt: Prompt) -> list[Reply]:
            async with slots:
                return await self._ask(http, prompt, checkpoint)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(prompt)) for prompt in prompts]
        return [task.result() for task in tasks]

    async def _ask(self, http: aiohttp.ClientSession, prompt: Prompt, checkpoint: str) -> list[Reply]:
        waited, pause = 0.0, 0.05
        while True:
            failure = await self._try(http, prompt, checkpoint)
            if not isinstance(failure, str):
                return failure
            if waited + pause > self.patience_s:
                raise InferenceError(f"{self.url}: no answer after waiting {self.patience_s:g} s, last: {failure}")
            await asyncio.sleep(pause)
            waited, pause = waited + pause, min(2 * pause, 2.0)

    async def _try(self, http: aiohttp.ClientSession, prompt: Prompt, checkpoint: str) -> list[Reply] | str:
        """The replies, or what went wrong and may pass."""
        try:
            async with http.post(f"{self.url}/chat/completions", json=self._body(prompt, checkpoint)) as response:
                status, content = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            return f"{type(error).__name__}: {error}"
        if status != 200:
            failure = f"HTTP {status}: {content[:300].decode(errors='replace')}"
            if status in PASSING:
                return failure
            raise InferenceError(f"{self.url}: {failure}")
        chat = ChatResponse.model_validate_json(content)
        if chat.policy_version != checkpoint or len(chat.choices) != prompt.n:
            return f"{len(chat.choices)} of {prompt.n} choices by {chat.policy_version!r} instead of {checkpoint!r}"
        return [
            Reply(
                text=choice.message.content,
                tokens=choice.completion_tokens,
                finish_reason=choice.finish_reason,
                mean_entropy=choice.mean_entropy,
                entropy_error=choice.entropy_error,
                checkpoint=chat.policy_version,
                seed=prompt.seed + choice.index,
            )
            for choice in sorted(chat.choices, key=lambda choice: choice.index)
        ]

    def _body(self, prompt: Prompt, checkpoint: str) -> dict[str, object]:
        return {
            "model": self.model,
            "policy_version": checkpoint,
            "messages": list(prompt.messages),
            "n": prompt.n,
            "seed": prompt.seed,
            "temperature": prompt.sampling.temperature,
            "top_p": prompt.sampling.top_p,
            "max_tokens": prompt.sampling.max_tokens,
            "stop": list(prompt.stop),
        }


async def _session() -> aiohttp.ClientSession:
    """Connections that are kept from one batch to the next, as many as there are requests under way."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)  # an answer takes what it takes
    return aiohttp.ClientSession(headers=access.headers(), connector=connector, timeout=timeout)


async def _cancel_all() -> None:
    """End every other task of this loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
