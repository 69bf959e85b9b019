from __future__ import annotations

import numpy as np
import pytest

from core.rollouts.embedding import DIMENSIONS, hashed_embeddings, reasoning_part


def test_similarity_is_shared_words_and_word_pairs() -> None:
    rows = hashed_embeddings(["a b c", "a b c", "x y z", "a b d", ""])
    similarity = rows @ rows.T
    assert rows.shape == (5, DIMENSIONS)
    assert similarity[0, 1] == pytest.approx(1)
    assert similarity[0, 2] == 0
    assert similarity[0, 3] == pytest.approx(3 / 5)  # a, b and "a b", of five each
    assert not rows[4].any()


def test_the_thinking_is_left_out() -> None:
    assert reasoning_part("<think>a</think> b ") == "b"
    assert reasoning_part(" b ") == " b "
    assert (hashed_embeddings(["<think>q r s</think>b"]) == hashed_embeddings(["b"])).all()


def test_it_says_the_same_in_every_process() -> None:
    """The hash is not Python's own, which differs from process to process."""
    assert np.flatnonzero(hashed_embeddings(["a"])).tolist() == [434]
