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
    label = vote(["1/2", "0.5", r"\frac{1}{2}", "0.4", None], None)
    assert label == PseudoLabel(
        answer="0.5",
        votes=3,
        m=5,
        parsed=4,
        unknown=0,
        p_hat=0.6,
        denominator="all",
        classes=(("0.5", 3), ("0.4", 1)),
    )


def test_p_hat_is_a_share_of_all_rollouts_or_of_those_with_an_answer() -> None:
    answers = ["3", "3", "4", None, " ", None]
    assert vote(answers, None).p_hat == 2 / 6
    assert vote(answers, None, "parsed").p_hat == 2 / 3
    assert vote(answers, None, "parsed").denominator == "parsed"
    assert vote(answers, None).parsed == 3


@pytest.mark.parametrize("answers", [[], [None, None], ["", " ", "$$"]])
def test_a_group_without_answers_has_no_label(answers: list[str | None]) -> None:
    for denominator in ("all", "parsed"):
        label = vote(answers, None, denominator)
        assert (label.answer, label.votes, label.p_hat, label.classes) == (None, 0, 0.0, ())
        assert (label.m, label.parsed) == (len(answers), 0)


def test_a_tie_goes_to_the_smallest_key() -> None:
    assert vote(["7", "3", "7", "3"], None).answer == "3"
    assert vote(["b", "a"], None).answer == "a"


def test_the_label_has_the_spelling_that_most_rollouts_used() -> None:
    assert vote(["025", "025", "25"], None).answer == "025"
    assert vote(["025", "25"], None).answer == "025"
    assert vote([r"\dfrac{1}{2}", r"\frac12", "0.5"], None).answer == r"\frac{1}{2}"


def test_a_grader_merges_answers_that_are_equal_by_mathematics_only(grader: Grader) -> None:
    answers = [r"2\sqrt{3}", r"\sqrt{12}", r"\sqrt{12}", "3.46", "x=4", "4"]
    assert vote(answers, None).votes == 2
    label = vote(answers, grader)
    assert (label.answer, label.votes, label.unknown) == (r"\sqrt{12}", 3, 0)
    assert label.classes == ((r"\sqrt{12}", 3), ("4", 2), ("3.46", 1))


def test_classes_merge_only_when_all_their_members_are_equal(grader: Grader) -> None:
    # 5 equals 5 cm and 5 km, which do not equal each other: it joins the larger class, or the first by key.
    assert vote(["5", "5 km", "5 km", "5 cm"], grader).classes == ((r"5\text{km}", 3), (r"5\text{cm}", 1))
    assert vote(["5", "5 km", "5 cm"], grader).classes == (("5", 2), (r"5\text{km}", 1))


def test_unknown_comparisons_merge_nothing_and_are_counted(grader: Grader) -> None:
    label = vote(["5", "5", "5 or so apples", r"\frac{1}{", None], grader)
    assert (label.answer, label.votes, label.unknown) == ("5", 2, 3)
    assert len(label.classes) == 3


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


def test_a_tie_goes_to_the_class_with_the_smallest_spelling_of_any_member(grader: Grader) -> None:
    """Both classes have three votes: `1+x` comes before `m`, though most of its class are `x+1`, which comes after."""
    assert vote(["m", "m", "m", "x+1", "x+1", "1+x"], grader).answer == "x+1"
