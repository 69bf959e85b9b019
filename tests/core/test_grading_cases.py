"""The answers of `benchmarks/grading_cases.jsonl`: each pair has a verdict that a person gave."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.grading_cases import OUTCOMES, Case, load_cases
from core.grading.answers import answer_key, normalise
from core.grading.grader import Grader, grade_pairs, verdict_here
from core.questions.voting import vote_many

CASES = load_cases()
NAMES = list(dict.fromkeys(case.name for case in CASES))
UNDECIDED = {  # a person decides these; we do not
    ("1,000.99m²", "1000.99"),
    (r"1+2+\ldots+10", "13"),
    ("5th term", "5"),
    (r"\underbrace{5}", "5"),
    ("yes!", "yes"),
    (r"A^{\dagger}", "A"),
    ("A^T B", "AB"),
    (r"\dot{y}", "y"),
    (r"\ddot{x}", r"\dot{x}"),
    ("5‰", "0.005"),
    (r"\text{Area of } ABC = 12", "12"),
    (r"\root 3 \of {8}", "2"),
    (r"\sqrt\frac14", r"\frac12"),
    (r"\pmatrix{1\\2}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    (r"\pmatrix{1&2\cr3&4}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
    (r"\operatorname{Re}(z)", r"\operatorname{Im}(z)"),
    ("sqrt2", r"\sqrt2"),
    ("x>3", r"3<x<\infty"),
    (r"\frac{x^2}{4}+\frac{y^2}{9}=1", r"\frac{x^2}{9}+\frac{y^2}{4}=1"),
    ("x^2=4", "x^2=5"),
    ("42 is the answer", "42"),
    (r"x\text{ and }y", "x, y"),
    (r"2\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\5\end{pmatrix}"),
}


@pytest.fixture(scope="module")
def outcomes() -> dict[Case, str]:
    comparisons = grade_pairs([(case.a, case.b) for case in CASES], deadline=20, workers=2)
    return {case: case.outcome(comparison.verdict) for case, comparison in zip(CASES, comparisons, strict=True)}


@pytest.mark.parametrize("name", NAMES)
def test_each_pair_gets_the_verdict_of_a_person(name: str, outcomes: dict[Case, str]) -> None:
    wrong = {
        (case.a, case.b): outcome for case, outcome in outcomes.items() if case.name == name and outcome != "right"
    }
    assert wrong == {
        (case.a, case.b): "unknown" for case in CASES if case.name == name and (case.a, case.b) in UNDECIDED
    }


def test_every_class_has_enough_cases_of_both_kinds() -> None:
    counts = Counter(case.name for case in CASES)
    assert min(counts.values()) >= 10
    assert {case.expected for case in CASES} == {"equal", "unequal", "not unequal", "not equal"}
    assert {case.outcome(verdict) for case in CASES for verdict in ("equal", "unequal", "unknown")} == set(OUTCOMES)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_reading_an_answer_again_changes_nothing(name: str) -> None:
    answers = {text for case in CASES if case.name == name for text in (case.a, case.b)}
    assert {text for text in answers if normalise(normalise(text)) != normalise(text)} == set()
    assert {text for text in answers if answer_key(answer_key(text)) != answer_key(text)} == set()


@pytest.mark.parametrize("name", NAMES)
def test_equality_is_symmetric_and_reflexive(name: str, outcomes: dict[Case, str]) -> None:
    cases = [case for case in CASES if case.name == name]
    assert {case.a for case in cases if verdict_here(case.a, case.a) != "equal"} == set()
    swapped = grade_pairs([(case.b, case.a) for case in cases], deadline=20)
    assert [case.outcome(comparison.verdict) for case, comparison in zip(cases, swapped, strict=True)] == [
        outcomes[case] for case in cases
    ]


def test_no_two_numbers_and_units_of_one_key_differ() -> None:
    """What the vote merges by its key alone is equal: the key of an answer and the answer."""
    texts = sorted({text for case in CASES for text in (case.a, case.b)})
    keys = dict(zip(texts, map(answer_key, texts), strict=True))
    comparisons = grade_pairs([*keys.items()], deadline=20, workers=2)
    assert {text for text, comparison in zip(texts, comparisons, strict=True) if comparison.verdict != "equal"} == set()


def test_a_vote_merges_what_is_equal_and_parts_what_is_not(outcomes: dict[Case, str]) -> None:
    """Two answers are one class of a vote exactly if they are equal."""
    with Grader(deadline=20, workers=2) as grader:
        labels = vote_many([[case.a, case.b] for case in CASES], grader)
        verdicts = [comparison.verdict for comparison in grader.compare_many([(case.a, case.b) for case in CASES])]
    votes = {
        case: len(label.classes) for case, label in zip(CASES, labels, strict=True) if case.a.strip() and case.b.strip()
    }
    equal = {
        case: 1 if verdict == "equal" else 2 for case, verdict in zip(CASES, verdicts, strict=True) if case in votes
    }
    assert {case for case in votes if votes[case] != equal[case]} == set()
