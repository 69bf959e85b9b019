from __future__ import annotations

import numpy as np
import pytest

from core.rollouts.embedding import DIMENSIONS, hashed_embeddings, reasoning_part


def test_similarity_is_the_share_of_common_words_and_word_pairs() -> None:
    rows = hashed_embeddings(["a b c", "a b c", "x y z", "a b d", ""])
    similarity = rows @ rows.T
    assert rows.shape == (5, DIMENSIONS)
    assert similarity[0, 1] == pytest.approx(1)
    assert similarity[0, 2] == 0
    assert similarity[0, 3] == pytest.approx(3 / 5)  # both have a, b and "a b", of five words and pairs
    assert not rows[4].any()


def test_a_text_s_thinking_is_left_out() -> None:
    assert reasoning_part("<think>a</think> b ") == "b"
    assert reasoning_part(" b ") == " b "
    assert (hashed_embeddings(["<think>q r s</think>b"]) == hashed_embeddings(["b"])).all()


def test_embeddings_are_the_same_in_every_process() -> None:
    """The hash is not Python's own `hash`, which differs from process to process."""
    assert np.flatnonzero(hashed_embeddings(["a"])).tolist() == [434]
