"""Requests that arrive while a batch is sampled become the next batch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from core.settings.training import Sampling
from services.inference.engines.base import Prompt
from services.inference.server.batching import Batcher


def prompt(text: str, n: int = 1) -> Prompt:
    return Prompt(({"role": "user", "content": text},), 0, n, Sampling())


class FakeEngine:
    """Returns each prompt's text in capitals; `sample` waits until the test sets `let_go`."""

    def __init__(self) -> None:
        self.batches = list[list[str]]()
        self.begun, self.let_go = asyncio.Event(), asyncio.Event()

    async def sample(self, prompts: list[Prompt]) -> list[str]:
        texts = [str(prompt.messages[0]["content"]) for prompt in prompts]
        self.batches.append(texts)
        self.begun.set()
        await self.let_go.wait()
        if "bad" in texts:
            raise ValueError("a bad prompt")
        return [text.upper() for text in texts]


async def submit(batcher: Batcher[str], *prompts: Prompt) -> list[asyncio.Task[str]]:
    """Give the prompts to the batcher; returns the waiting requests."""
    tasks = [asyncio.create_task(batcher.ask(prompt)) for prompt in prompts]
    await asyncio.sleep(0)
    return tasks


def run_story(story: Callable[[FakeEngine, Batcher[str]], Awaitable[None]], rows: int = 8) -> FakeEngine:
    async def run() -> FakeEngine:
        engine = FakeEngine()
        async with asyncio.timeout(20):
            await story(engine, Batcher(engine.sample, rows))
        return engine

    return asyncio.run(run())


def test_simultaneous_requests_are_one_batch_and_later_ones_the_next() -> None:
    async def story(engine: FakeEngine, batcher: Batcher[str]) -> None:
        first = await submit(batcher, prompt("a"), prompt("b"))
        first += await submit(batcher, prompt("c"))
        await engine.begun.wait()
        later = await submit(batcher, prompt("d"), prompt("e"))
        engine.let_go.set()
        assert await asyncio.gather(*first, *later) == ["A", "B", "C", "D", "E"]
        assert await batcher.ask(prompt("f")) == "F"  # a request to an idle batcher

    assert run_story(story).batches == [["a", "b", "c"], ["d", "e"], ["f"]]


def test_a_batch_has_at_most_the_allowed_rows_but_at_least_one_prompt() -> None:
    async def story(engine: FakeEngine, batcher: Batcher[str]) -> None:
        engine.let_go.set()
        await asyncio.gather(*await submit(batcher, prompt("a", 5), prompt("b", 3), prompt("c", 9), prompt("d", 2)))

    assert run_story(story).batches == [["a", "b"], ["c"], ["d"]]


def test_a_cancelled_request_is_not_sampled() -> None:
    async def story(engine: FakeEngine, batcher: Batcher[str]) -> None:
        [first] = await submit(batcher, prompt("a"))
        await engine.begun.wait()
        [cancelled, other] = await submit(batcher, prompt("b"), prompt("c"))
        for task in (first, cancelled):  # for the first it is too late: it is being sampled
            task.cancel()
        await asyncio.sleep(0)
        engine.let_go.set()
        assert await other == "C"

    assert run_story(story).batches == [["a"], ["c"]]


def test_a_failure_is_raised_for_all_requests_of_its_batch_and_no_others() -> None:
    async def story(engine: FakeEngine, batcher: Batcher[str]) -> None:
        failing = await submit(batcher, prompt("a"), prompt("bad"))
        await engine.begun.wait()
        [later] = await submit(batcher, prompt("b"))
        engine.let_go.set()
        for task in failing:
            with pytest.raises(ValueError, match="a bad prompt"):
                await task
        assert await later == "B"

    run_story(story)


def test_a_cancelled_worker_fails_its_requests_and_those_that_wait() -> None:
    """As when the event loop ends. Without an answer, they would sleep until their client gives up."""

    async def story(engine: FakeEngine, batcher: Batcher[str]) -> None:
        before = asyncio.all_tasks()
        sampled = await submit(batcher, prompt("a"))
        await engine.begun.wait()
        [worker] = asyncio.all_tasks() - before - {*sampled}
        waiting = await submit(batcher, prompt("b"), prompt("c"))
        worker.cancel()
        results = await asyncio.gather(*sampled, *waiting, return_exceptions=True)
        assert [type(result) for result in results] == [RuntimeError] * 3
        engine.let_go.set()
        assert await batcher.ask(prompt("d")) == "D"

    run_story(story)


def test_an_engine_with_too_few_results_fails_the_batch() -> None:
    async def story(_engine: FakeEngine, _batcher: Batcher[str]) -> None:
        async def sample(prompts: list[Prompt]) -> list[str]:
            return ["only one"] * (1 if len(prompts) > 1 else len(prompts))

        short = Batcher(sample, rows=8)
        results = await asyncio.gather(*await submit(short, prompt("a"), prompt("b")), return_exceptions=True)
        assert isinstance(results[1], ValueError)
        assert await short.ask(prompt("c")) == "only one"

    run_story(story)
