"""The outcome of a comparison, and of several together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from core.types import EqualityVerdict


class Outcome(NamedTuple):
    """A verdict, and the reason if it is unknown."""

    verdict: EqualityVerdict
    reason: str | None = None


EQUAL, UNEQUAL = Outcome("equal"), Outcome("unequal")
NEEDS_JUDGE = Outcome("unknown", "needs the symbolic judge")


def all_of(outcomes: Iterable[Outcome]) -> Outcome:
    """Unequal beats unknown beats equal."""
    return _combine(outcomes, decisive=UNEQUAL, otherwise=EQUAL)


def any_of(outcomes: Iterable[Outcome]) -> Outcome:
    """Equal beats unknown beats unequal."""
    return _combine(outcomes, decisive=EQUAL, otherwise=UNEQUAL)


def _combine(outcomes: Iterable[Outcome], decisive: Outcome, otherwise: Outcome) -> Outcome:
    """`decisive` as soon as an outcome has its verdict. Otherwise an unknown outcome, preferably `NEEDS_JUDGE`, which a
    judge can still decide; `otherwise` if none is unknown."""
    unknown = None
    for outcome in outcomes:
        if outcome.verdict == decisive.verdict:
            return decisive
        if outcome.verdict == "unknown" and (unknown is None or outcome == NEEDS_JUDGE):
            unknown = outcome
    return unknown or otherwise
