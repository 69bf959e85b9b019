"""Embeddings of responses without a model: hashed words and word pairs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIMENSIONS = 1024
_THINKING_ENDS = "</think>"


def reasoning_part(response: str) -> str:
    """What is embedded of a response: what follows its thinking, or all of it (EVOL-RL's released code)."""
    return response.partition(_THINKING_ENDS)[2].strip() if _THINKING_ENDS in response else response


def hashed_embeddings(responses: Sequence[str]) -> NDArray[np.float64]:
    """Rows (G, 1024) of unit length, of counts of hashed words and word pairs; an empty text is a row of zeros.

    Two rows are as similar as the words they share, whatever these mean. Not a sentence embedder: where one is to be
    had, use it.
    """
    embedded: NDArray[np.float64] = _vectorizer().transform([reasoning_part(text) for text in responses]).toarray()
    return embedded


@cache
def _vectorizer() -> Any:
    # more than a second, which most who import this module need not wait: other methods have no embeddings
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(
        tokenizer=str.split,
        token_pattern=None,
        n_features=DIMENSIONS,
        ngram_range=(1, 2),
        alternate_sign=False,
        norm="l2",
        dtype=np.float64,
    )
