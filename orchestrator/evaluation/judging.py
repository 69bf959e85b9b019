"""Asks a judge about many cases, and stores its verdicts batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from core.asking.judge import Judge
from core.grading.grader import process_grader
from core.judging.replies import Case
from core.statistics.estimates import share
from orchestrator.run import Progress
from services.oracles import judge


def ask_in_batches(
    cases: Sequence[Case],
    done: Container[str],
    settings: Judge,
    seed: int,
    save: Callable[[judge.JudgedBatch], None],
    progress: Progress,
    what: str,
) -> dict[str, Any]:
    """Ask a judge about the cases whose keys are not in `done`, and `save` each batch before the next.

    The result says what this took, with the judge's accuracy on sentinels. What was stored before is not included.
    Raises as `judge.audit`.
    """
    remaining = [case for case in cases if case.key not in done]
    batches: list[judge.JudgedBatch] = []
    for start in range(0, len(remaining), settings.batch):
        progress(len(cases) - len(remaining) + start, len(cases), what)
        batches.append(judge.audit(remaining[start : start + settings.batch], settings, process_grader(), seed))
        save(batches[-1])
    progress(len(cases), len(cases), what)
    tallies = [tally for batch in batches for tally in (batch.sentinels, *batch.thrown_away)]
    accuracy = share(sum(tally.right for tally in tallies), sum(tally.n for tally in tallies))
    return {
        "asked": sum(len(batch.labels) for batch in batches),
        "batches": len(batches),
        "thrown_away": sum(len(batch.thrown_away) for batch in batches),
        "sentinels": accuracy and {"value": accuracy.value, "ci95": [accuracy.lo, accuracy.hi], "n": accuracy.n},
        "prompt_tokens": sum(batch.spent.prompt_tokens for batch in batches),
        "reply_tokens": sum(batch.spent.reply_tokens for batch in batches),
    }
