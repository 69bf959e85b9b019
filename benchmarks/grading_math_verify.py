"""Asks math-verify whether answers are equal, as its README shows, for the benchmark `grading`."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence

from core.types import EqualityVerdict

LIMIT = 30.0  # seconds for a pair; math-verify's own limit is 5 s, but its signal does not interrupt a call into C


def compare_many(pairs: Sequence[tuple[str, str]]) -> Iterator[EqualityVerdict]:
    """The verdicts on pairs of a true answer and another, in order.

    math-verify has no third verdict. Here a pair is unknown if math-verify reads nothing from one of the two, or has
    not answered after `LIMIT`. Its own time limit needs the main thread, so another process asks it.
    """
    context = multiprocessing.get_context("spawn")
    pool = context.Pool(1)
    try:
        for pair in pairs:
            try:
                yield pool.apply_async(_compare, pair).get(LIMIT)
            except multiprocessing.TimeoutError:
                pool.terminate()
                pool = context.Pool(1)
                yield "unknown"
    finally:
        pool.terminate()


def _compare(gold: str, answer: str) -> EqualityVerdict:
    from math_verify import parse, verify  # here, because it imports sympy, which takes time

    # In `\boxed{}` it reads less: `\boxed{5.}` as a text, `$5.$` as 5.
    parsed_gold, parsed_answer = (parse(text if text.startswith("$") else f"${text}$") for text in (gold, answer))
    if not parsed_gold or not parsed_answer:
        return "unknown"
    return "equal" if verify(parsed_gold, parsed_answer) else "unequal"
