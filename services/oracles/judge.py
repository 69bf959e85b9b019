"""The oracle that is a language model. It is asked in batches, and each batch contains sentinels: questions of known
verdict.

If the judge gets too many sentinels of a batch wrong, the whole batch is thrown away, and it is asked again with other
seeds and other sentinels. If a reply of the judge cannot be understood, the verdict is `unknown`, never a guess.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import aiohttp

from core.asking.judge import Judge
from core.errors import CoevoError
from core.grading.grader import Grader
from core.judging.replies import Case, JudgeResult, combine_replies, messages
from core.judging.sentinels import draw_sentinels
from core.seeds import seed_for
from core.types import OracleLabel, Spent
from services.inference.external import RequestRefused, ask_each
from services.inference.external_chats import ask_chat

_NOTHING = Spent()
_SEEDS = 2**31  # seeds below this are accepted by every service


class JudgeError(CoevoError):
    """A judge gets too many sentinels wrong."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many sentinels a judge got right."""

    right: int
    n: int

    def __str__(self) -> str:
        return f"{self.right} of {self.n}"


@dataclass(frozen=True, slots=True)
class JudgedBatch:
    """The labels that a judge gave to a batch, and what this took.

    `spent` includes batches that were thrown away. The tokens are as counted by the service, and 0 if it does not
    report them.
    """

    labels: list[OracleLabel]
    sentinels: Tally
    thrown_away: list[Tally]
    spent: Spent


@dataclass(frozen=True, slots=True)
class _Reply:
    text: str | None  # None: the request was refused, or the reply is not text or was cut off
    spent: Spent = _NOTHING
    refused: str | None = None


def audit(batch: Sequence[Case], settings: Judge, grader: Grader, seed: int) -> JudgedBatch:
    """Ask the judge about a batch, which must not be empty. The labels are in the order of the batch. A case that
    cannot be asked about is `unknown`. This blocks, so call it outside of an event loop.

    Raises `JudgeError` when the accuracy on the sentinels stays below `sentinel_accuracy` in all attempts,
    `InferenceError` when the service cannot be asked, and `GradingError`.
    """
    thrown_away: list[Tally] = []
    spent, refused = Spent(), None

    def verdict_on(case: Case, replies: dict[str, list[_Reply]]) -> JudgeResult:
        return combine_replies(settings.prompt, case, [reply.text for reply in replies[case.key]], grader)

    for attempt in range(settings.batch_attempts):
        # The sentinels depend on the batch. The seeds of a question's replies do not.
        sentinel_seed = seed_for(seed, "sentinels", attempt, batch[0].question)
        questions = [case.question for case in batch]
        sentinels = draw_sentinels(settings.prompt, questions, settings.sentinels, sentinel_seed)
        cases = [*batch, *(sentinel.case for sentinel in sentinels)]
        random.Random(sentinel_seed).shuffle(cases)
        replies = asyncio.run(_ask_all(cases, settings, seed_for(seed, "ask", attempt)))
        all_replies = [reply for case_replies in replies.values() for reply in case_replies]
        spent = sum((reply.spent for reply in all_replies), spent)
        refused = next((reply.refused for reply in all_replies if reply.refused), refused)
        passed = [
            sentinel.passed(settings.prompt, verdict_on(sentinel.case, replies), grader) for sentinel in sentinels
        ]
        tally = Tally(sum(passed), len(sentinels))
        if tally.right >= settings.sentinel_accuracy * tally.n:
            labels = []
            for case in batch:
                verdict = verdict_on(case, replies)
                truth = case.truth.solution if settings.prompt == "equivalence" and case.truth else verdict.answer
                labels.append(OracleLabel(case.key, settings.oracle, verdict.verdict, truth))
            return JudgedBatch(labels, tally, thrown_away, spent)
        thrown_away.append(tally)
    raise JudgeError(
        f"{settings.url}: {settings.model}: sentinel accuracy: expected at least {settings.sentinel_accuracy:g} of the "
        f"questions whose answers are known, got {', '.join(map(str, thrown_away))} right; the batch is thrown away"
        + (f"; it refused some requests: {refused}" if refused else "")
    )


async def _ask_all(cases: Sequence[Case], settings: Judge, seed: int) -> dict[str, list[_Reply]]:
    """Key of a case -> its `samples` replies. All cases are asked about at the same time."""

    async def ask(http: aiohttp.ClientSession, item: tuple[Case, int]) -> _Reply:
        case, sample = item
        chat = messages(settings.prompt, case)
        if chat is None:
            return _Reply(None)
        seed_of_reply = seed_for(seed, case.question, sample) % _SEEDS
        try:
            reply = await ask_chat(
                http, settings, chat, settings.max_tokens, seed=seed_of_reply, temperature=settings.temperature
            )
        except RequestRefused as error:  # a question that a service refuses must not stop the audit of the others
            return _Reply(None, Spent(1), refused=str(error))
        # a reply that was cut off has not reached its answer
        whole = reply.text and reply.finish_reason != "length" and not reply.filtered
        return _Reply(reply.text if whole else None, reply.spent)

    samples = range(settings.samples)
    replies = iter(await ask_each(settings, product(cases, samples), ask, settings.concurrency))
    return {case.key: [next(replies) for _ in samples] for case in cases}
