"""The answers of `benchmarks/grading_cases.jsonl`: each pair has a verdict that a person gave."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.grading_cases import OUTCOMES, Case, load_cases
from core.grading.answers import answer_key, normalise
from core.grading.grader import grade_pairs

CASES = load_cases()
UNDECIDED = {("1,000.99m²", "1000.99"), (r"1+2+\ldots+10", "13")}  # a person decides these; we do not


@pytest.fixture(scope="module")
def outcomes() -> dict[Case, str]:
    comparisons = grade_pairs([(case.a, case.b) for case in CASES], deadline=20, workers=2)
    return {case: case.outcome(comparison.verdict) for case, comparison in zip(CASES, comparisons, strict=True)}


@pytest.mark.parametrize("name", list(dict.fromkeys(case.name for case in CASES)))
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


@pytest.mark.parametrize("answer", sorted({text for case in CASES for text in (case.a, case.b)}))
def test_reading_an_answer_again_changes_nothing(answer: str) -> None:
    assert normalise(normalise(answer)) == normalise(answer)
    assert answer_key(answer_key(answer)) == answer_key(answer)
