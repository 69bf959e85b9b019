"""True answers that any point of a polynomial's curve satisfies (Poly-EPO 6.2)."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.grading.answers import extract_boxed
from core.grading.grader import Grader
from core.types import EqualityVerdict

CURVE = r"\in \{(x, y) \mid y = x^2 + 3x + 7\}"  # the paper's example


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("(1, 11)", "equal"),  # 1 + 3 + 7, the paper's solution
        ("(x=1, y=11)", "equal"),
        ("x = 1, y = 11", "equal"),
        ("(x, y) = (1, 11)", "equal"),
        (r"\left(-4,\ 11.0\right)", "equal"),  # 16 - 12 + 7
        (r"(\frac{1}{2}, \frac{35}{4})", "equal"),  # 1/4 + 3/2 + 7
        ("(0, 7)", "equal"),
        ("(11, 1)", "unequal"),
        ("(1, 12)", "unequal"),
        ("(1, 11, 0)", "unequal"),
        ("11", "unequal"),
        ("", "unequal"),
        ("y = x^2 + 3x + 7", "unequal"),
        (CURVE, "unequal"),  # the relation itself is no point
        (r"\{(x, y) \mid y = x^2 + 3x + 7\}", "unequal"),
        ("(x, x^2 + 3x + 7)", "unknown"),
        (r"(\sqrt{2}, 9 + 3\sqrt{2})", "unknown"),
        ("(1/0, 1/0)", "unknown"),
    ],
)
def test_a_point_is_right_if_it_is_on_the_curve(answer: str, verdict: EqualityVerdict, grader: Grader) -> None:
    comparison = grader.compare(answer, CURVE)
    assert (comparison.verdict, grader.compare(CURVE, answer).verdict) == (verdict, verdict)
    assert comparison.reason == ("not rational numbers" if verdict == "unknown" else None)
    assert grader.worker_pids == []  # no worker was needed


@given(
    st.lists(st.integers(-99, 99), min_size=1, max_size=5),
    st.fractions(-50, 50, max_denominator=20),
    st.fractions(-3, 3, max_denominator=4),
)
def test_any_rational_point_of_any_polynomial(coefficients: list[int], x: Fraction, error: Fraction) -> None:
    terms = "".join(f"{factor:+}x^{{{power}}}" for power, factor in enumerate(coefficients) if power) or "+0x"
    curve = rf"\in \{{(x, y) \mid y = {coefficients[0]}{terms}\}}"
    y = sum(factor * x**power for power, factor in enumerate(coefficients))
    verdict = Grader().compare(f"({x}, {y + error})", curve).verdict
    assert verdict == ("unequal" if error else "equal")


@pytest.mark.parametrize(
    "text",
    [
        r"\in \{(x, y) \mid y = 2^x\}",
        r"\in \{(x, y) \mid y = x^{10}\}",
        r"\in \{(x, y) \mid y = 2(x + 1)\}",
        r"\in \{(x, y) \mid y = \}",
        r"\in \{(x, y) \mid y = x^2 + \}",
        r"\in \{(x, y) \mid x = y\}",
    ],
)
def test_another_relation_is_compared_as_any_other_text(text: str) -> None:
    assert Grader().compare(text, text).verdict == "equal"


def test_the_curve_is_no_answer_of_a_reply() -> None:
    """Otherwise it would vote for every point, and be right wherever it goes through the true point."""
    assert extract_boxed(rf"so \boxed{{{CURVE}}}") is None
    assert extract_boxed(rf"so \boxed{{${CURVE}$.}}") is None
    assert extract_boxed(r"so \boxed{y = x^2 + 3x + 7}") == "y = x^2 + 3x + 7"
    assert extract_boxed(r"so \boxed{x \in [0, 1]}") == r"x \in [0, 1]"


def test_a_named_pair_equals_the_pair(grader: Grader) -> None:
    """Otherwise the same point in two spellings would be two strategies."""
    assert grader.compare("(x, y) = (1, 11)", "(1, 11)").verdict == "equal"
    assert grader.compare("(x, y) = (1, 11)", "(x = 1, y = 11)").verdict == "equal"
    assert grader.compare("(x, y) = (1, 11)", "(1, 12)").verdict == "unequal"
