"""The client of the inference applications.

It sends many prompts at once, repeats requests when a replica is lost, and checks which checkpoint made each reply.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import aiohttp
from anyio.from_thread import start_blocking_portal
from pydantic import BaseModel, ValidationError

from core.errors import CoevoError
from core.types import FinishReason, Spent
from core.waiting.retries import Attempts, is_transient
from services.inference import access
from services.inference.engines.base import Prompt
from services.inference.openai_api import ChatBatchResponse, ChatResponse
from services.listeners import guard

T = TypeVar("T")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0  # short, because a replica may swap its checkpoint within a second


class InferenceError(CoevoError):
    """Raised when a service refuses a request, or does not answer it before the deadline."""


_PROMPTS_PER_REQUEST = 8  # if the server has the batch route


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
    prompt_tokens: int = 0  # 0 if the service does not say
    # Only if the client asked for them: the sampled tokens, with the end token, and the log-probability of each, nats.
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None


def spent(groups: Iterable[Sequence[Reply]]) -> Spent:
    """The requests and tokens of prompts, of which each group has the replies to one."""
    counts = [(group[0].prompt_tokens, sum(reply.tokens for reply in group)) for group in groups]
    return Spent(len(counts), sum(prompt for prompt, _ in counts), sum(replies for _, replies in counts))


@dataclass(frozen=True, slots=True)
class InferenceClient:
    """A client of one of our own applications, with either engine. `url` ends in /v1."""

    url: str
    model: str  # the application's name
    # The total time spent waiting between the attempts of a request, before it is given up. The attempts themselves
    # do not count, since a replica may be lost after minutes of sampling.
    patience_s: float = 120.0
    # The longest that a request may take with all its attempts, so that a replica that hangs does not hold the run for
    # ever. It is long, since a request of long answers waits for its turn behind hundreds of others.
    deadline_s: float = 21_600.0
    # The most prompts sent and not yet answered, over all batches. Each may need a connection, and a process can often
    # open only 1,024 files. Also, Serve assigns prompts to replicas when they arrive: with many more, it would do so
    # long before it is known which replicas will be busy.
    concurrency: int = 512
    token_logprobs: bool = False  # whether replies have `token_ids` and `logprobs`

    def generate(self, prompts: Sequence[Prompt], checkpoint: str) -> list[list[Reply]]:
        """Sample every prompt from `checkpoint`; result[i][j] is drawn with the seed prompts[i].seed + j.

        A request is repeated as long as its failure may pass by itself. A reply by another checkpoint is never used.
        Raises `InferenceError`. Blocks; call it outside an event loop.
        """
        with closing(self.generate_in_turn([prompts], checkpoint, 1)) as batches:
            return next(batches)

    def generate_in_turn(
        self, batches: Iterable[Sequence[Prompt]], checkpoint: str, at_once: int
    ) -> Generator[list[list[Reply]], None, None]:
        """Yield the result of `generate` for each batch, in order, while up to `at_once` batches are in progress.

        The caller must close the generator (`contextlib.closing`). The batches in progress are then cancelled, as they
        are when a batch fails.
        """
        in_progress = deque[Future[list[list[Reply]]]]()
        headers = access.headers()
        try:
            with (
                start_blocking_portal() as loop,  # in a thread; at the end, what still runs in it is cancelled
                loop.wrap_async_context_manager(loop.call(open_session, self.url, headers)) as http,
            ):
                request_size = loop.call(self._request_size, http)
                slots = asyncio.Semaphore(max(1, self.concurrency // request_size))  # for requests in progress
                for batch in batches:
                    replies = loop.start_task_soon(self._generate, http, batch, checkpoint, request_size, slots)
                    in_progress.append(replies)
                    if len(in_progress) == at_once:
                        yield in_progress.popleft().result()
                while in_progress:
                    yield in_progress.popleft().result()
        except ExceptionGroup as group:  # the first failure has cancelled the other requests
            raise group.exceptions[0] from None

    async def _generate(
        self,
        http: aiohttp.ClientSession,
        prompts: Sequence[Prompt],
        checkpoint: str,
        request_size: int,
        slots: asyncio.Semaphore,
    ) -> list[list[Reply]]:
        """Send the prompts in requests of `request_size`; each request takes one of `slots`."""

        async def send(request: Sequence[Prompt]) -> list[list[Reply]]:
            async with slots:
                return await self._with_retries(partial(self._send, http, request, checkpoint))

        async with asyncio.TaskGroup() as group:
            requests = [prompts[start : start + request_size] for start in range(0, len(prompts), request_size)]
            tasks = [group.create_task(send(request)) for request in requests]
        return [replies for task in tasks for replies in task.result()]

    async def _request_size(self, http: aiohttp.ClientSession) -> int:
        """How many prompts to send in one request: 1 unless the server has the batch route."""

        async def ask() -> int | str:
            async with http.get(f"{self.url}/models", allow_redirects=False) as response:
                if is_transient(response.status):
                    return await _failure(response)
                content = await response.read()
            try:
                models = _Models.model_validate_json(content).data
            except ValidationError:  # the server is not one of ours
                return 1
            # The list of the embedded engine is empty while a checkpoint is swapped in.
            return _PROMPTS_PER_REQUEST if all(model.batches for model in models) else 1

        return await self._with_retries(ask)

    async def _with_retries(self, attempt: Callable[[], Awaitable[T | str]]) -> T:
        """The result of `attempt`, which is repeated while it returns a string: a failure that may pass by itself."""
        attempts = Attempts(
            self.deadline_s,
            waiting_s=self.patience_s,
            first_pause_s=_FIRST_PAUSE_S,
            longest_pause_s=_LONGEST_PAUSE_S,
        )
        while True:
            try:
                async with asyncio.timeout(attempts.remaining_s):
                    result = await attempt()
            except (aiohttp.ClientError, TimeoutError) as error:
                result = f"{type(error).__name__}: {error}"
            if not isinstance(result, str):
                return result
            if not await attempts.async_pause():
                raise InferenceError(
                    f"{self.url}: no answer after waiting {self.patience_s:g} s, or within {self.deadline_s:g} s "
                    f"in all; the last failure was: {result}"
                )

    async def _send(
        self, http: aiohttp.ClientSession, prompts: Sequence[Prompt], checkpoint: str
    ) -> list[list[Reply]] | str:
        """The replies to the prompts of one request, or a message about a failure that may pass by itself."""
        bodies = [
            {
                "model": self.model,
                "policy_version": checkpoint,
                "messages": list(prompt.messages),
                "n": prompt.n,
                "seed": prompt.seed,
                "temperature": prompt.sampling.temperature,
                "top_p": prompt.sampling.top_p,
                "top_k": prompt.sampling.top_k,
                "max_tokens": prompt.sampling.max_tokens,
                "stop": list(prompt.stop),
                **({"token_logprobs": True} if self.token_logprobs else {}),
                **({"vocabulary_dropout": prompt.dropout.model_dump()} if prompt.dropout else {}),
            }
            for prompt in prompts
        ]
        single = len(bodies) == 1
        route, body = ("", bodies[0]) if single else ("/batch", {"requests": bodies})
        async with http.post(f"{self.url}/chat/completions{route}", json=body, allow_redirects=False) as response:
            if response.status != 200:
                failure = await _failure(response)
                if is_transient(response.status):
                    return failure
                raise InferenceError(f"{self.url}: {failure}")
            content = await response.read()
        try:
            if single:
                chats = [ChatResponse.model_validate_json(content)]
            else:
                chats = ChatBatchResponse.model_validate_json(content).responses
        except ValidationError as error:
            raise InferenceError(f"{self.url}: HTTP 200 with a body that is not a completion: {error}"[:500]) from error
        if len(chats) != len(prompts):
            return f"expected {len(prompts)} completions, got {len(chats)}"
        for chat, prompt in zip(chats, prompts, strict=True):
            if chat.policy_version != checkpoint or len(chat.choices) != prompt.n:
                return (
                    f"expected {prompt.n} choices by {checkpoint!r}, got {len(chat.choices)} by {chat.policy_version!r}"
                )
            for choice in chat.choices if self.token_logprobs else ():
                counts = [len(values or ()) for values in (choice.token_ids, choice.token_logprobs)]
                if counts != [choice.completion_tokens] * 2:
                    raise InferenceError(
                        f"{self.url}: token_logprobs: expected {choice.completion_tokens} token_ids and "
                        f"token_logprobs, got {counts[0]} and {counts[1]}"
                    )
        return [
            [
                Reply(
                    text=choice.message.content,
                    tokens=choice.completion_tokens,
                    finish_reason=choice.finish_reason,
                    mean_entropy=choice.mean_entropy,
                    entropy_error=choice.entropy_error,
                    checkpoint=chat.policy_version,
                    seed=prompt.seed + choice.index,
                    prompt_tokens=chat.usage.prompt_tokens,
                    token_ids=None if choice.token_ids is None else tuple(choice.token_ids),
                    logprobs=None if choice.token_logprobs is None else tuple(choice.token_logprobs),
                )
                for choice in sorted(chat.choices, key=lambda choice: choice.index)
            ]
            for chat, prompt in zip(chats, prompts, strict=True)
        ]


class _Model(BaseModel):
    batches: bool = False  # whether the server has the batch route


class _Models(BaseModel):
    """A server's list of models, with the one field that the client reads."""

    data: list[_Model]


async def _failure(response: aiohttp.ClientResponse) -> str:
    return f"HTTP {response.status}: {(await response.read())[:300].decode(errors='replace')}"


def open_session(url: str, headers: Mapping[str, str]) -> aiohttp.ClientSession:
    """An HTTP session for `url` that keeps its connections open between requests and does not limit their number or
    their time. A key in the headers is sent to no other user's process on this machine.

    Must be called within an event loop.
    """
    if headers:
        guard(url)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    return aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=0), timeout=timeout)
