"""NLTK and scikit-learn are the references: distances are equal to the last bit, and clusters, also where there are
ties. Texts of the same words are at distance 0, which is our own rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from sklearn.cluster import AgglomerativeClustering

from core.questions import similarity
from core.questions.similarity import bleu_distances, clusters

# Few words, so that texts often repeat, overlap or tie; and every kind of white space that `str.split` knows.
WORDS = st.lists(st.sampled_from(["a", "b", "c", "A", "a.", "naïve", "数"]), max_size=9)
SPACES = st.sampled_from([" ", "  ", "\t", "\n", "\u00a0", "\u2003", "\u3000"])
TEXTS = st.builds(str.join, SPACES, WORDS) | st.text(max_size=20)
BATCHES = st.lists(TEXTS, max_size=9)
EDGE_CASES = ["", " \n", "a", "a", "b", "a a a a a a", "a a", "a b c d", "a b c d e", "b a d c", "A B"]


def nltk_distances(questions: list[str]) -> np.ndarray:
    """The distances of the released code: one pair at a time, with the earlier question as the hypothesis."""
    distances = np.zeros((len(questions), len(questions)))
    smoothing = SmoothingFunction().method1
    for i, hypothesis in enumerate(questions):
        for j in range(i + 1, len(questions)):
            score = sentence_bleu([questions[j].split()], hypothesis.split(), smoothing_function=smoothing)
            same_words = hypothesis.split() == questions[j].split() != []
            distances[i, j] = distances[j, i] = 0 if same_words else 1 - score
    return distances


def sklearn_labels(distances: np.ndarray, threshold: float) -> list[int]:
    model = AgglomerativeClustering(
        metric="precomputed", linkage="average", distance_threshold=threshold, n_clusters=None
    )
    return model.fit_predict(distances).tolist()


def by_first_appearance(labels: list[int]) -> list[int]:
    numbers: dict[int, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]


@given(BATCHES)
@example(EDGE_CASES)
@settings(max_examples=300)
def test_distances_are_nltks_to_the_last_bit(questions: list[str]) -> None:
    assert np.array_equal(bleu_distances(questions), nltk_distances(questions))


@given(st.lists(TEXTS, min_size=2, max_size=9), st.data())
@settings(max_examples=300)
def test_clusters_are_scikit_learns_even_where_a_distance_equals_the_threshold(
    questions: list[str], data: st.DataObject
) -> None:
    distances = nltk_distances(questions)
    threshold = data.draw(st.sampled_from([0.0, 0.5, 1.0, *distances[np.triu_indices(len(questions), 1)].tolist()]))
    assert clusters(questions, threshold) == by_first_appearance(sklearn_labels(distances, threshold))


@given(BATCHES)
@settings(max_examples=50)
def test_distances_do_not_depend_on_the_size_of_the_blocks_or_on_the_look_up_table(questions: list[str]) -> None:
    expected = bleu_distances(questions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(similarity, "BLOCK_PAIRS", 3)
        patch.setattr(similarity, "TABLE", 0)
        assert np.array_equal(bleu_distances(questions), expected)


def test_the_earlier_question_is_the_hypothesis() -> None:
    short, long = "a b c d", "a b c d e f g h"
    assert bleu_distances([short, long])[0, 1] == pytest.approx(1 - np.exp(-1))  # only the brevity penalty counts
    assert bleu_distances([long, short])[0, 1] == pytest.approx(1 - (4 / 8 * 3 / 7 * 2 / 6 * 1 / 5) ** 0.25)


def test_repeated_questions_share_a_cluster_and_empty_ones_do_not() -> None:
    questions = ["What is 3 + 4 ?", "", "What is 3 + 4 ?", "", "Name all primes below ten."]
    assert clusters(questions) == [0, 1, 0, 2, 3]


@pytest.mark.parametrize(
    "question",
    ["Compute 5+5.", "1+1?", "Solve x=2.", "Find 9!", "计算5加5。", "จงหาค่าของ5+5", "a b c", "What is 3 + 4 ?"],
)
def test_copies_are_one_cluster_however_short_they_are(question: str) -> None:
    copies = [question, f" {question}\n", question.replace(" ", "  "), question]
    assert clusters([*copies, "Name all primes below ten."]) == [0, 0, 0, 0, 1]
    assert not bleu_distances(copies).any()
    assert (clusters(copies[:1]), clusters([])) == ([0], [])


def test_the_counts_of_long_and_repetitive_questions_do_not_overflow() -> None:
    questions = ["a " * 3000, "a " * 2999 + "b", "a b " * 1500]
    assert np.array_equal(bleu_distances(questions), nltk_distances(questions))
