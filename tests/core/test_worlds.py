"""The tiny worlds' questions in another form, and what is to be done in them."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.worlds import arithmetic, difficulty, equations, reordered, skeleton, solve
from trainers.micro.world import EQUATIONS, LONG, World, make_problem


@pytest.mark.parametrize("world", [LONG, EQUATIONS], ids=["arithmetic", "equations"])
@given(seed=st.integers(0, 2**32))
def test_a_question_belongs_to_one_world_and_its_other_form_too(world: World, seed: int) -> None:
    rng = random.Random(seed)
    question = make_problem(rng, world=world).text
    texts = [text for text in (question, reordered(question, rng)) if text is not None]
    known = {(arithmetic.solve(text) is None, equations.solve(text) is None) for text in texts}
    assert known == {(world is EQUATIONS, world is LONG)}
    assert {solve(text) for text in texts} == {solve(question)} != {None}
    assert {difficulty(text) for text in texts} == {difficulty(question)}


@given(st.integers(0, 2**32))
def test_another_order_has_the_same_answer_and_operations(seed: int) -> None:
    rng = random.Random(seed)
    question = make_problem(rng, world=LONG).text
    other = reordered(question, rng)
    if other is None:
        return
    assert other != question
    assert (solve(other), difficulty(other)) == (solve(question), difficulty(question))
    assert words_of(other) == words_of(question)


def words_of(question: str) -> Counter[str]:
    """How often it has each word, but for what the order decides: a first term has no sign, a first event no "then"."""
    return Counter(word for word in re.findall(r"[\w*+-]+", question) if word not in ("then", "+"))


@pytest.mark.parametrize(
    ("question", "others"),
    [
        ("What is 3 - 4?", {None}),  # the only term that can be the first is the first
        ("What is 3 + 4?", {"What is 4 + 3?"}),
        ("Compute 3 - 4 + 5 * 6.", {"Compute 3 + 5 * 6 - 4.", "Compute 5 * 6 + 3 - 4.", "Compute 5 * 6 - 4 + 3."}),
        ("Tom has 3 pens, buys 4 more. How many pens does Tom have?", {None}),
        (
            "Tom has 3 pens, buys 4 more, then sells 5. How many pens does Tom have?",
            {"Tom has 3 pens, sells 5, then buys 4 more. How many pens does Tom have?"},
        ),
        ("There are 3 boxes with 4 pens each. How many pens are there?", {None}),
        ("What is x + 4?", {None}),
    ],
)
def test_the_orders_of_a_question(question: str, others: set[str | None]) -> None:
    assert {reordered(question, random.Random(seed)) for seed in range(50)} == others


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is 3 - 4 * 5?", "- *"),
        ("Tom has 3 pens, buys 4 more, then sells 5. How many pens does Tom have?", "+ -"),
        ("There are 3 boxes with 4 pens each. How many pens are there?", "*"),
        ("What is 3?", ""),
        ("What is x + 4?", None),
    ],
)
def test_the_skeleton_has_the_operators(question: str, expected: str | None) -> None:
    assert skeleton(question) == expected
