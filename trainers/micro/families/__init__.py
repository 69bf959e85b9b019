"""How the questions of a tiny world and the lines of their solutions are drawn: one file for each kind of world."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with its answer and the lines that lead to it, one for each operation."""

    text: str
    lines: tuple[str, ...]
    answer: int

    @property
    def operations(self) -> int:
        return len(self.lines)


class Family(Protocol):
    """A file of this package."""

    PIECES: str  # a pattern: no token of the tokenizer is longer than one match

    def make(self, rng: random.Random, operations: int) -> Problem:
        """A problem with so many operations."""

    def make_ill_posed(self, question: str, rng: random.Random) -> str:
        """A version of `question` that has no answer."""


def number(rng: random.Random) -> int:
    """A random number, mostly of two digits."""
    return rng.randint(2, 9) if rng.random() < 0.3 else rng.randint(10, 99)
