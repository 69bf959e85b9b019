"""pass@k, maj@k and the majority's share: by hand, and against all sets of k answers."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.statistics.curves import CurvePoint, Tally, curve, majority_at_k, majority_share_at_k, pass_at_k
from core.statistics.estimates import mean_share

TALLIES = st.builds(
    lambda classes, blank: Tally(tuple(classes), blank),
    st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=4),
    st.integers(0, 3),
).filter(lambda tally: 0 < tally.n <= 10)


def answers_of(tally: Tally) -> list[tuple[int, bool] | None]:
    """The class of each answer, and whether it is right; None for a blank one."""
    voting = [(i, right) for i, (size, right) in enumerate(tally.classes) for _ in range(size)]
    return [*voting, *[None] * tally.blank]


def share_that_is_right(answers: tuple[tuple[int, bool] | None, ...]) -> float:
    votes = Counter(answer for answer in answers if answer is not None)
    winners = [right for (_, right), count in votes.items() if count == max(votes.values())]
    return fmean(winners) if winners else 0.0


def largest_share(answers: tuple[tuple[int, bool] | None, ...]) -> float:
    votes = Counter(answer for answer in answers if answer is not None)
    return max(votes.values(), default=0) / len(answers)


def test_by_hand() -> None:
    # Two of four answers are right: of the six pairs, one holds no right answer.
    assert pass_at_k(4, 2, 2) == pytest.approx(5 / 6)
    assert (pass_at_k(4, 0, 4), pass_at_k(4, 2, 3), pass_at_k(4, 1, 1)) == (0, 1, 0.25)
    # Answers 7 7 3 5 where 7 is right. Pairs: 77 is right; 73, 73, 75, 75 are ties, half right; 35 is wrong.
    assert majority_at_k(Tally(((2, True), (1, False), (1, False)), 0), 2) == pytest.approx((1 + 4 / 2) / 6)
    # Answers 7 3 3 and a blank one. Triples: 733 is wrong, 73_ twice a tie, 33_ wrong.
    assert majority_at_k(Tally(((1, True), (2, False)), 1), 3) == pytest.approx((2 / 2) / 4)
    # The majority's share of the pairs of 7 7 3 5: all of 77, half of the other five; of the triples of 7 3 3 and a
    # blank one: two thirds of 733 and of 33_, a third of 73_, which is there twice.
    assert majority_share_at_k(Tally(((2, True), (1, False), (1, False)), 0), 2) == pytest.approx((1 + 5 / 2) / 6)
    assert majority_share_at_k(Tally(((1, True), (2, False)), 1), 3) == pytest.approx(
        (2 / 3 + 2 / 3 + 1 / 3 + 1 / 3) / 4
    )


@given(TALLIES, st.data())
def test_all_are_the_means_over_all_sets(tally: Tally, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, tally.n))
    sets = [*combinations(answers_of(tally), k)]
    assert majority_at_k(tally, k) == pytest.approx(fmean(map(share_that_is_right, sets)))
    assert majority_share_at_k(tally, k) == pytest.approx(fmean(map(largest_share, sets)))
    any_right = fmean(any(answer is not None and answer[1] for answer in answers) for answers in sets)
    assert pass_at_k(tally.n, tally.right, k) == pytest.approx(any_right)


@given(TALLIES)
def test_one_answer_is_its_own_majority(tally: Tally) -> None:
    assert majority_at_k(tally, 1) == pytest.approx(tally.right / tally.n)
    assert pass_at_k(tally.n, tally.right, 1) == pytest.approx(tally.right / tally.n)


def test_many_answers_are_no_trouble() -> None:
    tally = Tally(((100, True), *[(1, False)] * 400), 524)
    assert majority_at_k(tally, 512) == pytest.approx(1)
    assert majority_share_at_k(tally, 1024) == pytest.approx(100 / 1024)
    assert majority_share_at_k(Tally(((1024, True),), 0), 512) == 1
    assert pass_at_k(1024, 1, 512) == pytest.approx(0.5)


@pytest.mark.parametrize("k", [0, 5])
def test_a_k_that_cannot_be_drawn_is_refused(k: int) -> None:
    tally = Tally(((4, True),), 0)
    for figure in (lambda: pass_at_k(4, 1, k), lambda: majority_at_k(tally, k), lambda: majority_share_at_k(tally, k)):
        with pytest.raises(ValueError, match=r"^k: "):
            figure()
    with pytest.raises(ValueError, match=r"^right: "):
        pass_at_k(4, 5, 1)


def test_a_curve_has_powers_of_two_and_the_number_of_answers() -> None:
    easy, hard = Tally(((6, True),), 0), Tally(((2, True), (4, False)), 1)
    points = curve([easy, hard])
    assert [point.k for point in points] == [1, 2, 4, 6]
    assert points[0].pass_at_k.value == pytest.approx((1 + 2 / 7) / 2)
    assert points[-1].maj_at_k.value == pytest.approx(0.5)  # 4 wrong votes beat 2 right ones
    assert points[-1].share_at_k.value == pytest.approx((1 + majority_share_at_k(hard, 6)) / 2)
    assert curve([]) == []
    assert curve([easy, Tally((), 0)]) == []
    [alone] = curve([Tally(((1, True),), 0)])
    assert alone == CurvePoint(1, mean_share([1]), mean_share([1]), mean_share([1]))
