from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.questions.filtering import band_verdict, easiest, filter_questions, statistics
from core.settings.config import Dataset
from core.types import LabelledQuestion, PseudoLabel, Question


def label(votes: int, m: int = 10, *, parsed: int | None = None, unknown: int = 0) -> PseudoLabel:
    answer = "7" if votes else None
    return PseudoLabel(answer, votes, m, m if parsed is None else parsed, unknown, votes / m, "all")


def question(index: int, text: str | None) -> Question:
    return Question(f"demo/1/{index:06d}", "demo", 1, index, text, text or "?", "demo/challenger/1", seed=index)


def test_the_paper_s_band_keeps_three_to_seven_votes_of_ten_and_no_filter_all_with_a_majority() -> None:
    # R-Zero D.1: between 3 and 7, inclusive; delta 0.25 around 1/2 is 0.25..0.75, and 2/10 and 8/10 lie outside.
    labels = [label(votes) for votes in range(11)]
    verdicts = [[band_verdict(of, dataset.limits) for of in labels] for dataset in (Dataset(), Dataset(filtered=False))]
    assert verdicts[0] == ["no_majority", *["too_hard"] * 2, *["kept"] * 5, *["too_easy"] * 3]
    assert verdicts[1] == ["no_majority", *["kept"] * 10]


@pytest.mark.parametrize("band", [(0.3, 0.8), (0.3, 0.7), (0.1 + 0.2, 0.7), (0.3, 0.1 + 0.7)])
def test_the_edges_of_a_band_are_kept_however_they_were_computed(band: tuple[float, float]) -> None:
    low, high = round(band[0] * 10), round(band[1] * 10)
    verdicts = [band_verdict(label(votes), band) for votes in (low - 1, low, high, high + 1)]
    assert verdicts == ["too_hard", "kept", "kept", "too_easy"]


@given(st.integers(1, 60), st.data())
def test_the_verdict_agrees_with_exact_fractions(m: int, data: st.DataObject) -> None:
    votes, low = data.draw(st.integers(1, m)), data.draw(st.integers(0, m))
    high = data.draw(st.integers(low, m))
    expected = "too_hard" if votes < low else "too_easy" if votes > high else "kept"
    assert band_verdict(label(votes, m), (low / m, high / m)) == expected


def test_malformed_and_duplicate_questions_are_filtered_out() -> None:
    questions = [
        question(0, "What is 3 + 4?"),
        question(1, None),
        question(2, "What  is\n3 + 4? "),  # the first question with other white space
        question(3, "what is 3 + 4?"),  # another case makes another question
        question(4, "What is 9 * 9?"),  # a held-out question
        question(5, "What is 9 * 9?"),
        question(6, None),
        question(7, "What is 3+4?"),
        question(8, "What is\u200b 9 * \u20609?"),  # with invisible characters
    ]
    verdicts = filter_questions(questions, held_out=["What is 5?", "What is  9 * 9?"])
    assert verdicts == {
        "demo/1/000001": "malformed",
        "demo/1/000002": "duplicate",
        "demo/1/000004": "duplicate",
        "demo/1/000005": "duplicate",
        "demo/1/000006": "malformed",
        "demo/1/000008": "duplicate",
    }


def test_statistics_count_every_verdict_and_have_means_of_what_was_voted_on() -> None:
    labelled = [
        LabelledQuestion("a", "A", label(5, parsed=8, unknown=2), "kept"),
        LabelledQuestion("b", "B", label(10), "too_easy"),
        LabelledQuestion("c", "C", label(1, parsed=6, unknown=1), "too_hard"),
        LabelledQuestion("d", "D", label(0, parsed=0), "no_majority"),
        LabelledQuestion("e", None, None, "malformed"),
        LabelledQuestion("f", "A", None, "duplicate"),
        LabelledQuestion("g", "A", None, "duplicate"),
        LabelledQuestion("h", "H", label(5), "refused", "lead"),
    ]
    stats = dataclasses.asdict(statistics(labelled))
    # p_hat is 0.5, 1, 0.1, 0 and 0.5; 8 + 10 + 6 + 0 + 10 of 50 rollouts have an answer.
    assert stats.pop("mean_p_hat") == pytest.approx(0.42)
    assert stats.pop("unparsed_share") == pytest.approx(0.32)
    assert stats == {
        "candidates": 8,
        "kept": 1,
        "too_easy": 1,
        "too_hard": 1,
        "no_majority": 1,
        "refused": 1,
        "malformed": 1,
        "duplicate": 2,
        "unknown": 3,
    }
    of_malformed = statistics(labelled[4:5])
    assert (of_malformed.candidates, of_malformed.mean_p_hat, of_malformed.unparsed_share) == (1, None, None)


@pytest.mark.parametrize(
    ("scores", "share", "expected"),
    [
        ([0.2, 0.9, 0.5, 0.8], 0.5, [1, 3]),
        ([0.5, 0.5, 0.5, 0.9], 0.5, [0, 3]),
        ([0.1, 0.2, 0.3], 0.01, [2]),
        ([0.1, 0.2], 1, [0, 1]),
    ],
)
def test_the_easiest_have_the_highest_scores(scores: list[float], share: float, expected: list[int]) -> None:
    assert easiest(scores, share) == expected
