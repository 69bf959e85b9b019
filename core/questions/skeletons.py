"""What a question asks to be done, without its numbers, and how alike two questions are in that."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sklearn.feature_extraction.text import HashingVectorizer

from core import worlds

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def skeleton(question: str) -> str:
    """The operations of a question of a tiny world; the words without their numbers of any other question."""
    known = worlds.skeleton(question)
    return " ".join(_NUMBER.sub(" ", question).split()) if known is None else known


def similarities(questions: Sequence[str], others: Sequence[str]) -> list[tuple[float, float]]:
    """For each of B questions, the largest and the mean cosine in [0, 1] of its skeleton and those of `others`.

    A skeleton is a vector of counts of its n-grams, n <= 3, hashed to 2**18 numbers. An empty one is like no other.
    """
    vectorizer = HashingVectorizer(
        tokenizer=str.split,
        token_pattern=None,
        lowercase=False,
        n_features=1 << 18,
        ngram_range=(1, 3),
        alternate_sign=False,
        norm="l2",
    )
    rows, memory = (vectorizer.transform([skeleton(text) for text in texts]) for texts in (questions, others))
    cosines = rows @ memory.T  # sparse: (B, M)
    largest, mean = cosines.max(axis=1).toarray().ravel(), cosines.mean(axis=1).A1
    return [(min(1.0, float(a)), min(1.0, float(b))) for a, b in zip(largest, mean, strict=True)]
