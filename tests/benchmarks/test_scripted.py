"""The benchmark of a data set still runs the loop's own stages; its figures need a quiet machine and more questions."""

from __future__ import annotations

from benchmarks.scripted import data_set


def test_a_data_set_is_made_and_labelled() -> None:
    figures = data_set(16)
    assert figures["generate_questions_s"] > 0 < figures["label_questions_s"]
