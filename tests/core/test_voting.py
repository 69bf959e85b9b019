from __future__ import annotations

import random
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.grading.grader import Grader
from core.questions.voting import classes_of, classify_many, vote, vote_many
from core.types import PseudoLabel

# Several spellings of the same values, values that only the grader finds equal, units (whose equality is not
# transitive), words, nonsense, and empty answers.
POOL = [
    *("1/2", "0.5", r"\frac{1}{2}", "50%", "25", "025", "24", r"2\sqrt{3}", r"\sqrt{12}", "x+1", "1+x", "x=5", "5"),
    *("5 cm", "5 m", "no solution", "No solution.", "1,2", "2,1", "(1,2)", r"\{1,2\}", r"\frac{1}{", "5 apples", " "),
    None,
]


def test_spellings_of_one_number_are_one_class_without_a_grader() -> None:
    label = PseudoLabel("0.5", 3, 5, 4, 0, 0.6, "all", (("0.5", 3), ("0.4", 1)))  # the parts are in their order
    assert vote(["1/2", "0.5", r"\frac{1}{2}", "0.4", None], None) == label


@pytest.mark.parametrize(
    ("answers", "answer"),
    [
        (["7", "3", "7", "3"], "3"),  # a tie goes to the smallest key
        (["b", "a"], "a"),
        (["025", "025", "25"], "025"),  # the label has the spelling that most rollouts used
        (["025", "25"], "025"),
        ([r"\dfrac{1}{2}", r"\frac12", "0.5"], r"\frac{1}{2}"),
    ],
)
def test_the_label_of_a_tie_and_of_several_spellings(answers: list[str | None], answer: str) -> None:
    assert vote(answers, None).answer == answer


@pytest.mark.parametrize(
    ("answers", "parsed", "of_all", "of_parsed"),
    [
        (["3", "3", "4", None, " ", None], 3, 2 / 6, 2 / 3),
        ([], 0, 0.0, 0.0),
        ([None, None], 0, 0.0, 0.0),
        (["", " ", "$$"], 0, 0.0, 0.0),
    ],
)
def test_p_hat_is_a_share_of_all_rollouts_or_of_those_with_an_answer(
    answers: list[str | None], parsed: int, of_all: float, of_parsed: float
) -> None:
    labels = vote(answers, None), vote(answers, None, "parsed")
    assert [(label.p_hat, label.denominator) for label in labels] == [(of_all, "all"), (of_parsed, "parsed")]
    for label in labels:
        assert (label.m, label.parsed) == (len(answers), parsed)
        if not parsed:
            assert (label.answer, label.votes, label.classes) == (None, 0, ())


@pytest.mark.parametrize(
    ("answers", "classes", "unknown"),
    [
        # Answers that are equal by mathematics only.
        (
            [r"2\sqrt{3}", r"\sqrt{12}", r"\sqrt{12}", "3.46", "x=4", "4"],
            ((r"\sqrt{12}", 3), ("4", 2), ("3.46", 1)),
            0,
        ),
        # 5 equals 5 cm and 5 km, which do not equal each other: it joins the larger class, or the first by key.
        (["5", "5 km", "5 km", "5 cm"], ((r"5\text{km}", 3), (r"5\text{cm}", 1)), None),
        (["5", "5 km", "5 cm"], (("5", 2), (r"5\text{km}", 1)), None),
        # Unknown comparisons merge nothing and are counted.
        (["5", "5", "5 or so apples", r"\frac{1}{", None], (("5", 2), ("5or so apples", 1), (r"\frac{1}{", 1)), 3),
        # Both have three votes: `1+x` comes before `m`, though most of its class are `x+1`, which comes after.
        (["m", "m", "m", "x+1", "x+1", "1+x"], (("x+1", 3), ("m", 3)), None),
    ],
)
def test_a_grader_merges_classes_all_of_whose_members_are_equal(
    answers: list[str | None], classes: tuple[tuple[str, int], ...], unknown: int | None, grader: Grader
) -> None:
    label = vote(answers, grader)
    assert (label.classes, label.answer, label.votes) == (classes, *classes[0])
    assert unknown in (None, label.unknown)


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(POOL), max_size=12), st.randoms(use_true_random=False), st.sampled_from(["all", "parsed"])
)
def test_votes_do_not_depend_on_the_order_of_the_rollouts(
    grader: Grader, answers: list[str | None], rng: random.Random, denominator: str
) -> None:
    shuffled = rng.sample(answers, len(answers))
    label = vote(answers, grader, denominator)
    assert vote(shuffled, grader, denominator) == label
    assert vote(shuffled, None) == vote(answers, None)
    assert sum(votes for _, votes in label.classes) == label.parsed <= label.m == len(answers)
    assert label.votes == max((votes for _, votes in label.classes), default=0)
    assert label.unknown <= comb(len(set(answers)), 2)


def test_groups_in_a_batch_vote_as_they_do_alone(grader: Grader) -> None:
    groups = [random.Random(seed).choices(POOL, k=10) for seed in range(30)]
    assert vote_many(groups, grader) == [vote(group, grader) for group in groups]


def test_each_answer_has_the_index_of_its_class(grader: Grader) -> None:
    answers = ["7", r"2\sqrt{3}", None, r"\sqrt{12}", " ", "7.0", "8", r"\sqrt{12}"]
    [(label, classes)] = classify_many([answers], grader)
    assert [text for text, _ in label.classes] == [r"\sqrt{12}", "7", "8"]
    assert classes == (1, 0, None, 0, None, 1, 2, 0)


@settings(max_examples=40)
@given(answers=st.lists(st.sampled_from(POOL), max_size=12))
def test_each_class_has_as_many_answers_as_votes(grader: Grader, answers: list[str | None]) -> None:
    [(label, classes)] = classify_many([answers], grader)
    assert [classes.count(index) for index in range(len(label.classes))] == [votes for _, votes in label.classes]
    assert classes.count(None) == label.m - label.parsed


def test_the_class_of_each_answer_is_recovered_from_a_stored_label() -> None:
    label = vote(["1,000", "1000", "0.50", "1000", r"\frac{1}{2}", None, " "], None)
    assert classes_of(["1,000", "1000", "0.50", "1000", r"\frac{1}{2}", None, " "], label.classes) == (
        *(0, 0, 1, 0, 1),
        *(None, None),
    )
    merged = (("x+1", 3), ("y", 1))
    assert classes_of(["x+1", "1+x", "y", "x+1"], merged) == (0, 0, 1, 0)
    # Here b may belong to either class; in the next line the two a fit into one class only.
    assert classes_of(["x+1", "b", "y", "a"], (("x+1", 2), ("y", 2))) == (0, None, 1, None)
    assert classes_of(["x+1", "b", "y", "a", "a"], (("x+1", 3), ("y", 2))) == (0, 1, 1, 0, 0)


@settings(max_examples=200)
@given(answers=st.lists(st.sampled_from(POOL), max_size=12))
def test_the_recovered_class_of_an_answer_is_the_one_it_voted_for_or_none(
    grader: Grader, answers: list[str | None]
) -> None:
    [(label, classes)] = classify_many([answers], grader)
    for recovered, voted in zip(classes_of(answers, label.classes), classes, strict=True):
        assert recovered in (voted, None)
    if len({index for index in classes if index is not None}) == 1:
        assert classes_of(answers, label.classes) == classes
