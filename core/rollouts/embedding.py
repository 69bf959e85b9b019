"""Embeddings of responses that need no model: hashed words and word pairs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIMENSIONS = 1024
_THINKING_ENDS = "</think>"


def reasoning_part(response: str) -> str:
    """The part of a response to embed: what follows its thinking, or all of it (as in EVOL-RL's released code)."""
    return response.partition(_THINKING_ENDS)[2].strip() if _THINKING_ENDS in response else response


def hashed_embeddings(responses: Sequence[str]) -> NDArray[np.float64]:
    """Counts of hashed words and word pairs, as rows (G, 1024) of unit length; an empty text is a row of zeros.

    Two rows are similar if the texts share words, whatever the words mean. A sentence embedder is better if one is
    available.
    """
    embeddings: NDArray[np.float64] = _vectorizer().transform([reasoning_part(text) for text in responses]).toarray()
    return embeddings


@cache
def _vectorizer() -> Any:
    # Imported here, because it takes more than a second, and most methods need no embeddings.
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
