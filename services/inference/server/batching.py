"""Gathers requests that arrive one by one, so that an engine can sample them together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from services.inference.engines.base import Prompt

T = TypeVar("T")

# A burst of requests is over when none has arrived for `_QUIET_S` seconds. An idle engine waits for the end of a burst,
# but no longer than `_LONGEST_WAIT_S`, because a request that arrives just after a batch has started must wait for the
# whole batch.
_QUIET_S = 0.02
_LONGEST_WAIT_S = 1.0


@dataclass(slots=True)
class _Request(Generic[T]):
    prompt: Prompt
    result: asyncio.Future[T]


class Batcher(Generic[T]):
    """Gathers prompts while the engine is busy, and then lets it sample them as one batch.

    `sample` returns one result per prompt. A batch takes prompts in the order of their arrival, as many as have at most
    `rows` completions in total, but at least one. An exception of `sample` is passed to all requests of the batch. A
    request that was cancelled before its batch started is not sampled.
    """

    def __init__(self, sample: Callable[[list[Prompt]], Awaitable[Sequence[T]]], rows: int) -> None:
        self._sample, self._rows = sample, rows
        self._waiting = deque[_Request[T]]()
        self._worker: asyncio.Task[None] | None = None

    async def ask(self, prompt: Prompt) -> T:
        """The result for `prompt`, after the batch with it has been sampled."""
        request = _Request[T](prompt, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._sample_all())
        return await request.result

    async def _sample_all(self) -> None:
        """Sample batches until no request is waiting. If this is cancelled, the requests fail instead of waiting on."""
        batch, deadline, previous_count = list[_Request[T]](), asyncio.get_running_loop().time() + _LONGEST_WAIT_S, 0
        try:
            # The burst: until no further request arrives, a full batch is waiting, or the longest wait is over.
            while previous_count < len(self._waiting) and asyncio.get_running_loop().time() < deadline:
                previous_count = len(self._waiting)
                if sum(request.prompt.n for request in self._waiting) >= self._rows:
                    break
                await asyncio.sleep(_QUIET_S)
            while batch := self._next_batch():
                try:
                    results = await self._sample([request.prompt for request in batch])
                    for request, result in zip(batch, results, strict=True):
                        if not request.result.done():
                            request.result.set_result(result)
                except Exception as error:  # noqa: BLE001 (passed to those who sent the requests)
                    _fail(batch, error)
        except asyncio.CancelledError:
            _fail([*batch, *self._waiting], RuntimeError("the sampling of this request was cancelled"))
            self._waiting.clear()
            raise

    def _next_batch(self) -> list[_Request[T]]:
        batch, rows = list[_Request[T]](), 0
        while self._waiting and (not batch or rows + self._waiting[0].prompt.n <= self._rows):
            request = self._waiting.popleft()
            if not request.result.done():
                batch.append(request)
                rows += request.prompt.n
        return batch


def _fail(requests: Iterable[_Request[T]], error: Exception) -> None:
    for request in requests:
        if not request.result.done():
            request.result.set_exception(error)
