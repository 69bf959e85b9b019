"""The client of the inference services: many prompts at once, lost replicas retried, every reply's maker checked."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import aiohttp
from pydantic import BaseModel, ValidationError

from core.errors import CoevoError
from core.types import FinishReason
from services.inference import access
from services.inference.engines.base import Prompt
from services.inference.openai_api import ChatBatchResponse, ChatResponse

T = TypeVar("T")

# Answers that pass by themselves: a replica was lost or is being started, or has not swapped its weights yet.
PASSING = frozenset({408, 409, 429, 500, 502, 503, 504})


class InferenceError(CoevoError):
    """A service refused a request, or did not answer it before the deadline."""


_TOGETHER = 8  # prompts a request, where the server takes several


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
    # Prompts under way at once, of all batches. Each may be a connection, and a process often has 1,024 files at most.
    # With many more, Serve has dealt them out to its replicas long before it is known which of them will be busy.
    concurrency: int = 512

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
        http = asyncio.run_coroutine_threadsafe(_own_session(), loop).result()
        try:
            together = asyncio.run_coroutine_threadsafe(self._together(http), loop).result()
            slots = self._slots(together)
            for batch in batches:
                replies = self._generate(http, batch, checkpoint, together, slots)
                under_way.append(asyncio.run_coroutine_threadsafe(replies, loop))
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
        async with await _own_session() as http:
            together = await self._together(http)
            return await self._generate(http, prompts, checkpoint, together, self._slots(together))

    def _slots(self, together: int) -> asyncio.Semaphore:
        """One for each request that may be under way."""
        return asyncio.Semaphore(max(1, self.concurrency // together))

    async def _generate(
        self,
        http: aiohttp.ClientSession,
        prompts: Sequence[Prompt],
        checkpoint: str,
        together: int,
        slots: asyncio.Semaphore,
    ) -> list[list[Reply]]:
        """`together` prompts a request, each of which has one of `slots`."""

        async def ask(some: Sequence[Prompt]) -> list[list[Reply]]:
            async with slots:
                return await self._patiently(partial(self._ask, http, some, checkpoint))

        async with asyncio.TaskGroup() as group:
            parts = [prompts[start : start + together] for start in range(0, len(prompts), together)]
            tasks = [group.create_task(ask(part)) for part in parts]
        return [replies for task in tasks for replies in task.result()]

    async def _together(self, http: aiohttp.ClientSession) -> int:
        """How many prompts the server takes in one request."""

        async def ask() -> int | str:
            async with http.get(f"{self.url}/models", allow_redirects=False) as response:
                if response.status in PASSING:
                    return await _failure(response)
                content = await response.read()
            try:
                models = _Models.model_validate_json(content).data
            except ValidationError:  # of another server
                return 1
            return _TOGETHER if all(model.batches for model in models) else 1  # none while one is swapped in

        return await self._patiently(ask)

    async def _patiently(self, attempt: Callable[[], Awaitable[T | str]]) -> T:
        """What `attempt` gives, tried again as long as it says what went wrong and may pass."""
        waited, pause = 0.0, 0.05
        while True:
            try:
                result = await attempt()
            except (aiohttp.ClientError, TimeoutError) as error:
                result = f"{type(error).__name__}: {error}"
            if not isinstance(result, str):
                return result
            if waited + pause > self.patience_s:
                raise InferenceError(f"{self.url}: no answer after waiting {self.patience_s:g} s, last: {result}")
            await asyncio.sleep(pause)
            waited, pause = waited + pause, min(2 * pause, 2.0)

    async def _ask(
        self, http: aiohttp.ClientSession, prompts: Sequence[Prompt], checkpoint: str
    ) -> list[list[Reply]] | str:
        """The replies to the prompts of one request, or what went wrong and may pass."""
        bodies = [self._body(prompt, checkpoint) for prompt in prompts]
        single = len(bodies) == 1
        route, body = ("", bodies[0]) if single else ("/batch", {"requests": bodies})
        async with http.post(f"{self.url}/chat/completions{route}", json=body, allow_redirects=False) as response:
            if response.status != 200:
                failure = await _failure(response)
                if response.status in PASSING:
                    return failure
                raise InferenceError(f"{self.url}: {failure}")
            content = await response.read()
        if single:
            chats = [ChatResponse.model_validate_json(content)]
        else:
            chats = ChatBatchResponse.model_validate_json(content).responses
        for chat, prompt in zip(chats, prompts, strict=True):
            if chat.policy_version != checkpoint or len(chat.choices) != prompt.n:
                return f"{len(chat.choices)} of {prompt.n} choices by {chat.policy_version!r} instead of {checkpoint!r}"
        return [_replies(chat, prompt) for chat, prompt in zip(chats, prompts, strict=True)]

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


class _Model(BaseModel):
    batches: bool = False  # whether the server has the route for several chats


class _Models(BaseModel):
    """What is looked at of a server's list of its models."""

    data: list[_Model]


def _replies(chat: ChatResponse, prompt: Prompt) -> list[Reply]:
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


async def _failure(response: aiohttp.ClientResponse) -> str:
    return f"HTTP {response.status}: {(await response.read())[:300].decode(errors='replace')}"


def open_session(headers: Mapping[str, str], total_s: float | None) -> aiohttp.ClientSession:
    """Connections that are kept from one request to the next, as many as there are requests under way. `total_s` is
    what a request may take, in seconds; None: what it takes. To be called within an event loop."""
    timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=10)
    return aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=0), timeout=timeout)


async def _own_session() -> aiohttp.ClientSession:
    return open_session(access.headers(), total_s=None)


async def _cancel_all() -> None:
    """End every other task of this loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
