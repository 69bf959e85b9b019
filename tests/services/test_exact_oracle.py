"""The exact oracle solves the tiny world's questions, and refuses texts that only look like them."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.types import OracleLabel, OracleVerdict
from core.worlds import arithmetic
from core.worlds.arithmetic import difficulty, solve
from services.oracles.exact import audit
from trainers.micro import world
from trainers.micro.families import arithmetic as drawn

SEEDS = st.integers(0, 2**32)


def test_the_oracle_knows_the_world_s_verbs() -> None:
    assert (set(arithmetic.GAINS), set(arithmetic.LOSSES)) == (set(drawn.GAINS), set(drawn.LOSSES))


@given(SEEDS, st.sampled_from([None, 1, 2, 3, 4, 5, 6]))
@settings(max_examples=1000)
def test_the_oracle_solves_every_question_of_the_world(seed: int, operations: int | None) -> None:
    problem = world.make_problem(random.Random(seed), operations)
    assert solve(problem.text) == problem.answer
    assert difficulty(problem.text) == problem.operations


@given(SEEDS, SEEDS)
@settings(max_examples=1000)
def test_every_question_that_the_world_breaks_is_ill_posed(seed: int, how: int) -> None:
    # Every way to break a question removes a number or its end, and no question may lack these.
    broken = drawn.make_ill_posed(world.make_problem(random.Random(seed)).text, random.Random(how))
    assert solve(broken) is None
    assert difficulty(broken) is None


@given(SEEDS, st.data())
@settings(max_examples=500)
def test_a_question_without_one_of_its_words_is_ill_posed(seed: int, data: st.DataObject) -> None:
    words = world.make_problem(random.Random(seed)).text.split()
    optional = {"more.", "more,", "more", "then"}
    required = [i for i, word in enumerate(words) if word not in optional]
    del words[data.draw(st.sampled_from(required))]
    assert solve(" ".join(words)) is None


@pytest.mark.parametrize(
    ("question", "answer", "operations"),
    [
        ("What is 3 + 4 * 5 - 6?", 17, 3),
        ("Compute 2 * 3 * 4 - 5 * 6.", -6, 4),
        ("Evaluate 10 - 20 - 30.", -40, 2),
        ("Find the value of 0 * 999999999.", 0, 1),
        ("Calculate 7.", 7, 0),
        ("What is 3+4?", 7, 1),
        (" What  is 3 +\n4? ", 7, 1),
        ("There are 3 boxes with 12 pears each. How many pears are there?", 36, 1),
        ("José has 5 naïvetés. How many naïvetés does José have?", 5, 0),
        ("Tom has 5 pens, loses 3, then finds 4 more, then eats 9. How many pens does Tom have?", -3, 3),
        ("Tom has 5 pens, then loses 3 more, finds 4. How many pens does Tom have?", 6, 2),
    ],
)
def test_a_well_posed_question_has_an_answer_and_a_difficulty(question: str, answer: int, operations: int) -> None:
    assert (solve(question), difficulty(question)) == (answer, operations)


@pytest.mark.parametrize(
    "question",
    [
        "",
        "7",
        "What is 3 + 4",  # its end is cut off
        "What is 3 + 4.",  # its end is wrong
        "Compute 3 + 4?",
        "what is 3 + 4?",
        "What is 3 + 4? What is 5?",
        "So, what? What is 3 + 4?",
        "What is?",
        "What is 3 +?",
        "What is + 3?",
        "What is -3?",
        "What is 3 - -4?",
        "What is 3 4?",
        "What is 3 ** 4?",
        "What is 3 / 4?",
        "What is 3 + x?",
        "What is 3x + 4?",
        "What is 03 + 4?",
        "What is 3 + 00?",
        "What is 3.5 + 4?",
        "What is 1,000 + 4?",
        "What is (3 + 4) * 5?",
        "What is 1234567890 + 1?",  # ten digits
        "What is ٣ + 4?",  # an Arabic digit
        "What is 3 − 4?",  # U+2212
        "There are 3 boxes with 12 pears each. How many plums are there?",
        "There are 3 boxes with 12 boxes each. How many boxes are there?",
        "There are 03 boxes with 12 pears each. How many pears are there?",
        "There are some boxes with 12 pears each. How many pears are there?",
        "There are 3 bags with 12 pears each. How many pears are there?",
        "There are 3 boxes with 12 pears. How many pears are there?",
        "Tom has 5 pens, finds 3 more. How many pens does Mia have?",
        "Tom has 5 pens, finds 3 more. How many coins does Tom have?",
        "Tom has 5 more, finds 3 more. How many more does Tom have?",
        "Tom has some pens, finds 3 more. How many pens does Tom have?",
        "Tom has 5 pens, finds some more. How many pens does Tom have?",
        "Tom has 5 pens, finds 3more. How many pens does Tom have?",
        "Tom has 5 pens, hides 3. How many pens does Tom have?",
        "Tom has 5 pens, finds 03 more. How many pens does Tom have?",
        "Tom has 5 pens finds 3 more. How many pens does Tom have?",
        "Tom2 has 5 pens, finds 3 more. How many pens does Tom2 have?",
        # These are injections.
        "What is __import__('os').system('id')?",
        "Compute 3 + 4; raise SystemExit.",
        "What is 9**9**9**9?",
        "What is " + "(" * 900 + "3" + ")" * 900 + "?",
        "What is {0.__class__}?",
        "Tom has 5 pens, finds 3 more. How many pens does Tom have?'; DROP TABLE questions; --",
        "What is 3 + 4?\x00",
        "<|im_start|>system\nWhat is 3 + 4?",
    ],
)
def test_an_ill_posed_question_has_no_answer_and_no_difficulty(question: str) -> None:
    assert solve(question) is None
    assert difficulty(question) is None


def test_operations_and_length_are_bounded() -> None:
    def chain(operations: int) -> str:
        return f"What is 1{' + 1' * operations}?"

    def story(events: int) -> str:
        return f"Tom has 1 pens{', finds 1 more' * events}. How many pens does Tom have?"

    for question in (chain, story):
        assert (solve(question(24)), difficulty(question(24))) == (25, 24)
        assert solve(question(25)) is None
        assert solve(question(100_000)) is None
    assert solve("What is " + " " * 2000 + "3 + 4?") is None
    assert solve(f"What is 999999999{' * 999999999' * 24}?") == 999999999**25


FRAGMENTS = re.findall(
    r"\w+|[^\w\s]",
    "What is 3 + 4 * 07 - x? Compute (12). There are 3 boxes with 5 pens each. How many pens are there?"
    "Tom has 5 pens, finds 3 more, then loses 2. How many pens does Tom have?",
)


@given(st.text(max_size=300) | st.lists(st.sampled_from(FRAGMENTS), max_size=30).map(" ".join))
@settings(max_examples=500)
def test_any_text_is_ill_posed_for_both_functions_or_for_neither(text: str) -> None:
    assert (solve(text) is None) == (difficulty(text) is None)


@pytest.mark.parametrize(
    ("question", "pseudo_label", "verdict"),
    [
        ("What is 3 + 4?", "7", "right"),
        ("What is 3 + 4?", "7.0", "right"),
        ("What is 3 + 4?", r"\frac{14}{2}", "right"),
        ("What is 3 + 4?", "-7", "wrong"),
        ("What is 3 + 4?", "seven", "right"),
        ("What is 3 + 4?", "several", "wrong"),  # not a number
        ("What is 3 + 4?", "", "wrong"),
        ("What is 3 + 4?", "7.000000000000000000001", "wrong"),  # exact, not in floating point
        ("What is 3 + 4?", None, "unknown"),
        ("What is 3 +?", "7", "ill_posed"),
        ("What is 3 +?", None, "ill_posed"),
    ],
)
def test_an_audit_compares_exact_numbers(question: str, pseudo_label: str | None, verdict: OracleVerdict) -> None:
    truth = None if verdict == "ill_posed" else "7"
    assert audit("demo/1/000001", question, pseudo_label) == OracleLabel("demo/1/000001", "exact", verdict, truth)
