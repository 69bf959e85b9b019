"""What comes while a batch is at work is the next batch."""

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
    """Gives each prompt its text in capitals; a batch is at work until it is let go."""

    def __init__(self) -> None:
        self.batches = list[list[str]]()
        self.begun, self.let_go = asyncio.Event(), asyncio.Event()

    async def sample(self, prompts: list[Prompt]) -> list[str]:
        texts = [str(one.messages[0]["content"]) for one in prompts]
        self.batches.append(texts)
        self.begun.set()
        await self.let_go.wait()
        if "bad" in texts:
            raise ValueError("a bad prompt")
        return [text.upper() for text in texts]


async def asked(batcher: Batcher[str], *prompts: Prompt) -> list[asyncio.Task[str]]:
    """The requests, all of which wait in the batcher."""
    tasks = [asyncio.create_task(batcher.ask(one)) for one in prompts]
    await asyncio.sleep(0)
    return tasks


def in_a_loop(story: Callable[[FakeEngine, Batcher[str]], Awaitable[None]], rows: int = 8) -> FakeEngine:
    async def run() -> FakeEngine:
        engine = FakeEngine()
        async with asyncio.timeout(20):
            await story(engine, Batcher(engine.sample, rows))
        return engine

    return asyncio.run(run())


def test_a_burst_is_one_batch_and_what_comes_meanwhile_the_next() -> None:
    async def story(engine: FakeEngine, batcher: Batcher[str]) -> None:
        first = await asked(batcher, prompt("a"), prompt("b"))
        first += await asked(batcher, prompt("c"))
        await engine.begun.wait()
        later = await asked(batcher, prompt("d"), prompt("e"))
        engine.let_go.set()
        assert await asyncio.gather(*first, *later) == ["A", "B", "C", "D", "E"]
        assert await batcher.ask(prompt("f")) == "F"  # after a rest

    assert in_a_loop(story).batches == [["a", "b", "c"], ["d", "e"], ["f"]]


def test_a_batch_has_no_more_rows_than_may_be_but_at_least_one_prompt() -> None:
    async def story(engine: FakeEngine, batcher: Batcher[str]) -> None:
        engine.let_go.set()
        await asyncio.gather(*await asked(batcher, prompt("a", 5), prompt("b", 3), prompt("c", 9), prompt("d", 2)))

    assert in_a_loop(story).batches == [["a", "b"], ["c"], ["d"]]


def test_what_was_given_up_is_not_sampled() -> None:
    async def story(engine: FakeEngine, batcher: Batcher[str]) -> None:
        [first] = await asked(batcher, prompt("a"))
        await engine.begun.wait()
        [given_up, other] = await asked(batcher, prompt("b"), prompt("c"))
        for task in (first, given_up):  # of the first it is too late
            task.cancel()
        await asyncio.sleep(0)
        engine.let_go.set()
        assert await other == "C"

    assert in_a_loop(story).batches == [["a"], ["c"]]


def test_a_failure_is_that_of_all_in_the_batch_and_of_no_other() -> None:
    async def story(engine: FakeEngine, batcher: Batcher[str]) -> None:
        failing = await asked(batcher, prompt("a"), prompt("bad"))
        await engine.begun.wait()
        [later] = await asked(batcher, prompt("b"))
        engine.let_go.set()
        for task in failing:
            with pytest.raises(ValueError, match="a bad prompt"):
                await task
        assert await later == "B"

    in_a_loop(story)
