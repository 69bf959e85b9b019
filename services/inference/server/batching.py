"""Requests that come one by one, sampled together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from services.inference.engines.base import Prompt

T = TypeVar("T")

# A burst is over when nothing came for this long, in seconds. An engine that is idle waits for its end, since whoever
# comes just after a batch has begun waits for all of it.
_QUIET_S = 0.02
_LONGEST_WAIT_S = 1.0


@dataclass(slots=True)
class _Request(Generic[T]):
    prompt: Prompt
    result: asyncio.Future[T]


class Batcher(Generic[T]):
    """Gathers prompts while an engine is at work, and then has it sample them together.

    `sample` gives one result a prompt. A batch has as many prompts, in the order in which they came, as have at most
    `rows` completions between them, and at least one. What `sample` raises goes to all who are in the batch. A request
    that was given up before its batch began is not sampled.
    """

    def __init__(self, sample: Callable[[list[Prompt]], Awaitable[Sequence[T]]], rows: int) -> None:
        self._sample, self._rows = sample, rows
        self._waiting = deque[_Request[T]]()
        self._work: asyncio.Task[None] | None = None

    async def ask(self, prompt: Prompt) -> T:
        """The result for `prompt`, once a batch with it has been sampled."""
        request = _Request[T](prompt, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._work_off())
        return await request.result

    async def _work_off(self) -> None:
        await self._end_of_burst()
        while batch := self._next():
            try:
                results = await self._sample([request.prompt for request in batch])
            except Exception as error:  # noqa: BLE001 (theirs who asked)
                for request in batch:
                    if not request.result.done():
                        request.result.set_exception(error)
            else:
                for request, result in zip(batch, results, strict=True):
                    if not request.result.done():
                        request.result.set_result(result)

    async def _end_of_burst(self) -> None:
        deadline, seen = asyncio.get_running_loop().time() + _LONGEST_WAIT_S, 0
        while seen < len(self._waiting) and asyncio.get_running_loop().time() < deadline:
            seen = len(self._waiting)
            if sum(request.prompt.n for request in self._waiting) >= self._rows:
                return
            await asyncio.sleep(_QUIET_S)

    def _next(self) -> list[_Request[T]]:
        batch, rows = list[_Request[T]](), 0
        while self._waiting and (not batch or rows + self._waiting[0].prompt.n <= self._rows):
            request = self._waiting.popleft()
            if not request.result.done():
                batch.append(request)
                rows += request.prompt.n
        return batch
