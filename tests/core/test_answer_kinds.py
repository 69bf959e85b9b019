"""How benchmarks' answers are read from replies and compared, by kind."""

from __future__ import annotations

import pytest

from core.grading.grader import Grader
from core.grading.kinds import cleaned, compare_many, read_answer


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        (r"So the answer is \boxed{C}.", "C"),
        (r"\boxed{(B)}", "B"),
        (r"\boxed{\text{D}}", "D"),
        (r"\boxed{\textbf{(E) } 7}", "E"),
        (r"\boxed{A. Paris}", "A"),
        (r"\boxed{Paris}", None),  # no letter that stands alone
        (r"\boxed{c}", None),
        (r"The answer is C.", None),  # nothing is boxed
    ],
)
def test_a_choice_is_the_letter_of_an_option(reply: str, letter: str | None) -> None:
    assert read_answer("choice", reply) == letter


@pytest.mark.parametrize(
    ("a", "b"),
    [("Yes", "yes."), ("(a)", "A"), ("[1, 2]", "1,2"), (r"\text{no idea}", "No  idea"), ("**x y**", "x y")],
)
def test_a_text_is_compared_without_what_does_not_matter(a: str, b: str) -> None:
    assert cleaned("text", a) == cleaned("text", b)


def test_a_text_without_anything_is_no_answer() -> None:
    assert cleaned("text", "**") is None
    assert cleaned("math", r"\frac12") == r"\frac12"


def test_answers_are_compared_by_their_kind() -> None:
    with Grader() as grader:
        assert compare_many("math", [(r"\frac{1}{2}", "0.5"), ("7", "8")], grader) == ["equal", "unequal"]
        assert compare_many("choice", [("A", "A"), ("A", "B")], grader) == ["equal", "unequal"]
        assert compare_many("text", [("3.0", "3"), ("x+1", "1+x")], grader) == ["equal", "unequal"]
        assert grader.worker_pids == []  # none of these pairs needs the symbolic judge
