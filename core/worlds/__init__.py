"""The tiny worlds, in which a program knows the answer to every question. Each world is one file of this package.

A world's file has the functions `solve`, `difficulty`, `skeleton` and `reordered`. A question belongs to the first
world whose grammar reads it; the grammars have no question in common. Questions are untrusted output of a model.
"""

from __future__ import annotations

import random

from core.worlds import arithmetic, equations

_WORLDS = (arithmetic, equations)


def solve(question: str) -> int | None:
    """The answer, or None when no world knows the question, which is ill-posed then."""
    return next((found for world in _WORLDS if (found := world.solve(question)) is not None), None)


def difficulty(question: str) -> int | None:
    """How many operations the answer takes, or None when the question is ill-posed."""
    return next((found for world in _WORLDS if (found := world.difficulty(question)) is not None), None)


def skeleton(question: str) -> str | None:
    """What is to be done, without the numbers: operations, separated by spaces. None when the question is ill-posed."""
    return next((found for world in _WORLDS if (found := world.skeleton(question)) is not None), None)


def reordered(question: str, rng: random.Random) -> str | None:
    """The same question in another form, which has the same answer. None if there is none, or it is ill-posed."""
    return next((found for world in _WORLDS if (found := world.reordered(question, rng)) is not None), None)
