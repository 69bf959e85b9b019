"""The oracle that is a language model: asked in batches, each with questions of known verdict among it.

A batch whose sentinels fail is thrown away whole and asked again with other seeds and other sentinels; none of it
reaches the caller. What the judge says that cannot be understood is `unknown`, never a guess.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import aiohttp

from core.errors import CoevoError
from core.grading.grader import Grader
from core.judging.replies import Case, judged, messages
from core.judging.sentinels import Sentinel, draw_sentinels
from core.seeds import seed_for
from core.settings.audit import Judge
from core.types import OracleLabel
from services.inference.client import InferenceError
from services.inference.external import RequestRefused, ask_each, post

_SEEDS = 2**31  # what every service takes for a seed


class JudgeError(CoevoError):
    """A judge that gets too many questions wrong whose answers are known."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many sentinels a judge got right."""

    right: int
    n: int

    def __str__(self) -> str:
        return f"{self.right} of {self.n}"


@dataclass(frozen=True, slots=True)
class JudgedBatch:
    """What a judge said of a batch, and what it took. `tokens` are those of the prompts and of the replies, as the
    service counts them, of thrown-away batches too; a service may not say."""

    labels: list[OracleLabel]
    sentinels: Tally
    thrown_away: list[Tally]
    tokens: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Reply:
    text: str | None  # None: it was refused, is no text, or was cut off
    tokens: tuple[int, int] = (0, 0)
    refused: str | None = None


def audit(batch: Sequence[Case], settings: Judge, grader: Grader, seed: int) -> JudgedBatch:
    """What the judge says of a batch, which is not empty, in its order; a case that cannot be asked is `unknown`.
    Blocks: call it outside an event loop.

    Raises `JudgeError` with the accuracy on the sentinels where it stays below `sentinel_accuracy`, `InferenceError`
    where the service cannot be asked, and `GradingError`.
    """
    thrown_away: list[Tally] = []
    spent, refused = (0, 0), None
    for attempt in range(settings.batch_attempts):
        # A batch's sentinels are its own, a question's draws are the same in whichever batch it is.
        sentinel_seed = seed_for(seed, "sentinels", attempt, batch[0].question)
        questions = [case.question for case in batch]
        sentinels = draw_sentinels(settings.prompt, questions, settings.sentinels, sentinel_seed)
        asked = _shuffled(batch, sentinels, sentinel_seed)
        replies = asyncio.run(_ask_all(asked, settings, seed_for(seed, "ask", attempt)))
        given = [reply for of_case in replies.values() for reply in of_case]
        spent = (spent[0] + sum(r.tokens[0] for r in given), spent[1] + sum(r.tokens[1] for r in given))
        refused = next((reply.refused for reply in given if reply.refused), refused)
        texts = {key: [reply.text for reply in of_case] for key, of_case in replies.items()}
        tally = Tally(sum(_passed(sentinel, texts, settings, grader) for sentinel in sentinels), len(sentinels))
        if tally.right >= settings.sentinel_accuracy * tally.n:
            labels = [_label(case, texts, settings, grader) for case in batch]
            return JudgedBatch(labels, tally, thrown_away, spent)
        thrown_away.append(tally)
    raise JudgeError(
        f"{settings.url}: {settings.model}: sentinel accuracy: expected at least {settings.sentinel_accuracy:g} of the "
        f"questions whose answers are known, got {', '.join(map(str, thrown_away))} right; the batch is thrown away"
        + (f"; it refused some: {refused}" if refused else "")
    )


def _shuffled(batch: Sequence[Case], sentinels: Sequence[Sentinel], seed: int) -> list[Case]:
    asked = [*batch, *(sentinel.case for sentinel in sentinels)]
    random.Random(seed).shuffle(asked)
    return asked


def _label(case: Case, replies: dict[str, list[str | None]], settings: Judge, grader: Grader) -> OracleLabel:
    verdict = judged(settings.prompt, case, replies[case.key], grader)
    truth = case.truth.solution if settings.prompt == "equivalence" and case.truth else verdict.answer
    return OracleLabel(case.key, settings.oracle, verdict.verdict, truth)


def _passed(sentinel: Sentinel, replies: dict[str, list[str | None]], settings: Judge, grader: Grader) -> bool:
    verdict = judged(settings.prompt, sentinel.case, replies[sentinel.case.key], grader)
    return sentinel.passed(settings.prompt, verdict, grader)


async def _ask_all(cases: Sequence[Case], settings: Judge, seed: int) -> dict[str, list[_Reply]]:
    """Key -> `samples` replies to it, those of all cases under way together."""

    async def ask(http: aiohttp.ClientSession, asked: tuple[Case, int]) -> _Reply:
        case, sample = asked
        return await _ask(http, case, settings, seed_for(seed, case.question, sample))

    samples = range(settings.samples)
    replies = iter(await ask_each(settings, product(cases, samples), ask, settings.concurrency))
    return {case.key: [next(replies) for _ in samples] for case in cases}


async def _ask(http: aiohttp.ClientSession, case: Case, settings: Judge, seed: int) -> _Reply:
    asked = messages(settings.prompt, case)
    if asked is None:
        return _Reply(None)
    body = {
        "model": settings.model,
        "messages": asked,
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "seed": seed % _SEEDS,
    }
    try:
        return _read(settings, await post(http, settings, "chat/completions", body))
    except RequestRefused as error:  # one question that a service will not take must not stop the audit of all others
        return _Reply(None, refused=str(error))


def _read(settings: Judge, reply: Any) -> _Reply:
    try:
        choice = reply["choices"][0]
        text, finish = choice["message"]["content"], choice.get("finish_reason")
        usage = reply.get("usage") or {}
        tokens = (_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise InferenceError(f"{settings.url}: chat: not what OpenAI's API returns: {error!r}") from error
    # one that was cut off has not come to its answer
    whole = isinstance(text, str) and finish not in ("length", "content_filter")
    return _Reply(text if whole else None, tokens)


def _count(given: object) -> int:
    return given if type(given) is int and given > 0 else 0
