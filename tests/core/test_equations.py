"""Systems of equations: which have an answer, what it takes, and the same ones in another form."""

from __future__ import annotations

import itertools
import random
import re
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.worlds.equations import difficulty, reordered, skeleton, solve
from trainers.micro.world import EQUATIONS, make_problem


@pytest.mark.parametrize(
    ("question", "answer", "operations"),
    [
        ("If a = 7, what is a?", 7, ""),
        ("Given a = 7, b = a, find b.", 7, ""),
        ("Let 7 = a. What is a?", 7, ""),
        ("Suppose a = 7, b = a + 5. Find b.", 12, "+"),
        ("Solve a = 7, b + a = 5 for b.", -2, "-"),
        ("Solve a = 7, a + b = 5 for b.", -2, "-"),
        ("Solve a = 7, 5 = b + a for b.", -2, "-"),
        ("Solve a = 7, b - a = 5 for b.", 12, "+"),
        ("Solve a = 7, a - b = 5 for b.", 2, "-"),
        ("Solve a = 7, 5 - b = a for b.", -2, "-"),
        ("Solve a = 7, 5 = a - b for b.", 2, "-"),
        ("Solve a = 7, b = 5 * a for b.", 35, "*"),
        ("Solve a = 7, a * 5 = b for b.", 35, "*"),
        ("Solve b = a + 5, a = 7 for b.", 12, "+"),  # in another order
        ("Solve a = 7, b = a + a, c = b - a for c.", 7, "+ -"),
        ("Solve a = 7, b = 4 + a, c = b + 2, d = c - b for d.", 2, "+ + -"),
        ("Solve a = 7, b = 3 * a, c = a - 2 for c.", 5, "-"),  # b is not needed
        ("Solve a = 3 * 4 for a.", 12, "*"),
        (" If a=7,  b =\na+5, what is b? ", 12, "+"),
        ("If a = 999999999, b = 999999999 * a, what is b?", 999999999**2, "*"),
    ],
)
def test_a_well_posed_system_has_an_answer_and_operations(question: str, answer: int, operations: str) -> None:
    assert (solve(question), skeleton(question), difficulty(question)) == (answer, operations, len(operations.split()))


@pytest.mark.parametrize(
    "question",
    [
        "",
        "If a = 7, what is b?",  # it has no b
        "If a = 7, b = c + 5, what is b?",
        "If a = 7, b = c + 5, what is a?",  # not every equation gives a letter
        "If a = 7, a = 7, what is a?",
        "If a = 7, a = 8, what is a?",
        "If a = 7, 3 = 3, what is a?",
        "If a = 7, b + b = 8, what is b?",  # an unknown twice in an equation
        "If a = 7, b = b + a, what is b?",
        "If a = 7, a * b = 21, what is b?",  # a product with an unknown factor
        "If a = 21, 3 * b = a, what is b?",
        "If a = 7, b = a * a, what is b?",  # a product of letters
        "If a = 7, b + 2 = a - 3, what is b?",  # two operations
        "If a = 7, b = a + 2 - 3, what is b?",
        "If a = 7, b = (a + 2), what is b?",
        "If a = 7, b = a / 7, what is b?",
        "If a = 7, b = 2a, what is b?",
        "If a = -7, what is a?",
        "If a = 07, what is a?",
        "If a = 1234567890, what is a?",  # ten digits
        "If a = \u0667, what is a?",  # an Arabic digit
        "If ä = 7, what is ä?",
        "If A = 7, what is A?",
        "If ab = 7, what is ab?",
        "If a = 7 b = a + 5, what is b?",
        "If a = 7,b = a + 5, what is b?",
        "If a = 7, what is a",  # its end is cut off
        "If a = 7, what is a.",
        "If a = 7, find a.",
        "if a = 7, what is a?",
        "So: If a = 7, what is a?",
        "If a = 7, what is a? If b = 7, what is b?",
        "If , what is a?",
        "If a = , what is a?",
        "Solve a = __import__('os') for a.",
        "If a = 7, what is a?\x00",
    ],
)
def test_an_ill_posed_system_has_nothing(question: str) -> None:
    assert solve(question) is None
    assert difficulty(question) is None
    assert skeleton(question) is None
    assert reordered(question, random.Random(1)) is None


def test_equations_and_length_are_bounded() -> None:
    chain = ["a = 1", *(f"{b} = {a} + {a}" for a, b in itertools.pairwise(ascii_lowercase))]
    assert solve(f"Solve {', '.join(chain)} for z.") == 2**25
    assert solve(f"Solve {', '.join([*chain, 'a = 1'])} for z.") is None
    assert solve(f"Solve {', '.join(['a = 1'] * 100_000)} for a.") is None
    assert solve("If a = 7, what is " + " " * 2000 + "a?") is None


def test_another_form_has_other_letters_orders_and_equations() -> None:
    question = "If a = 7, b = 30, c = a + 5, d = b - c, what is d?"
    others = [reordered(question, random.Random(seed)) or "" for seed in range(300)]
    assert {solve(other) for other in others} == {18}
    assert {skeleton(other) for other in others} == {"+ -"}
    assert len({re.split(r"[ ,.]", other)[0] for other in others}) == 5  # all ways to ask
    systems = [re.findall(r"(?:\w+)(?: [-+*=] \w+)+", other.split(" for ")[0]) for other in others]
    assert {tuple(system.index(part) for part in system if part.endswith(("= 7", "= 30"))) for system in systems} == {
        (0, 1),
        (0, 2),
    }
    signs = {"".join(re.findall(r"[-+*]", " ".join(system))) for system in systems}
    assert signs == {"++", "+-", "-+", "--"}
    assert set(ascii_lowercase) == set("".join(re.findall(r"\b[a-z]\b", " ".join(others))))


@given(st.integers(0, 2**32))
def test_another_form_has_one_new_letter_in_each_equation(seed: int) -> None:
    """As the questions that the Solver learned from: it can solve them from the first to the last."""
    rng = random.Random(seed)
    other = reordered(make_problem(rng, world=EQUATIONS).text, rng)
    assert other is not None
    known = set[str]()
    for equation in re.findall(r"\w+(?: [-+*=] \w+)+", other):
        letters = set(re.findall("[a-z]", equation))
        assert len(letters - known) == 1
        known |= letters


FRAGMENTS = re.findall(r"\w+|[^\w\s]", "If a = 7, b - a = 12, what is b? Solve 3 * b = c, c + 0 = d for d. Let Find")


@given(st.text(max_size=300) | st.lists(st.sampled_from(FRAGMENTS), max_size=30).map(" ".join))
def test_any_text_is_ill_posed_for_all_functions_or_for_none(text: str) -> None:
    assert len({solve(text) is None, difficulty(text) is None, reordered(text, random.Random(1)) is None}) == 1
