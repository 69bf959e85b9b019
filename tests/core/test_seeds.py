"""Figures over seeds, and differences between arms over their seeds."""

from __future__ import annotations

from itertools import product
from math import sqrt

import numpy as np
import pytest

from core.statistics.seeds import compare_seeds, over_seeds, seed_pairs, sign_test

REPEATS = 1_500


def runs(*values: float, first: int = 1) -> list[tuple[int, float]]:
    return [*enumerate(values, first)]


def test_the_mean_over_seeds_has_student_s_interval() -> None:
    # mean 0.6, standard deviation 0.1, and the 97.5% quantile of t with two degrees of freedom is 4.302653
    estimate = over_seeds([0.5, 0.6, 0.7], is_share=False)
    half = 4.302653 * 0.1 / sqrt(3)
    assert (estimate.value, estimate.lo, estimate.hi) == pytest.approx((0.6, 0.6 - half, 0.6 + half), abs=1e-6)
    assert estimate.n == 3
    assert over_seeds([0.5], is_share=True) is None


def test_the_interval_of_a_share_over_seeds_stays_within_0_and_1() -> None:
    # Student's interval alone would be 0.2 or 0.8 ± 12.706 * 0.1
    low, high = over_seeds([0.1, 0.3], is_share=True), over_seeds([0.7, 0.9], is_share=True)
    assert (low.lo, high.hi) == (0, 1)
    assert low.hi == pytest.approx(1)
    whole = over_seeds([0.1, 0.3], is_share=False)
    assert whole.hi == pytest.approx(0.2 + 12.7062 * 0.1, abs=1e-4)


def test_seeds_that_agree_have_no_interval_or_that_of_rounding() -> None:
    assert over_seeds([0.5, 0.5], is_share=True) is None
    rounded = over_seeds([0.5, 0.5], is_share=True, grain=1 / 30)
    assert rounded.hi - 0.5 == pytest.approx(12.7062 / 30 / sqrt(12) / sqrt(2), abs=1e-5)
    assert compare_seeds(runs(0.5, 0.5), runs(0.75, 0.75)) is None


@pytest.mark.parametrize(
    ("baseline", "arm", "interval", "paired"),
    [
        # docs/experiments.md, `iterations`: +14.6, +1.5 and +5.7 points, deviation 6.689; 4.302653 * 6.689 / sqrt(3)
        (runs(0, 0, 0), runs(14.6, 1.5, 5.7), (7.267, -9.350, 23.883), True),
        (runs(1, 2), runs(2, 4), (1.5, 1.5 - 12.7062 * 0.5, 1.5 + 12.7062 * 0.5), True),
        # the same values with other seeds: Welch's error is sqrt(0.5 / 2 + 2 / 2), with one degree of freedom
        (runs(1, 2), runs(2, 4, first=7), (1.5, 1.5 - 12.7062 * sqrt(1.25), 1.5 + 12.7062 * sqrt(1.25)), False),
        # an arm with fewer seeds is paired with those of the other
        (runs(1, 2, 50), runs(2, 4), (1.5, 1.5 - 12.7062 * 0.5, 1.5 + 12.7062 * 0.5), True),
    ],
)
def test_arms_are_compared_over_their_seeds(
    baseline: list[tuple[int, float]],
    arm: list[tuple[int, float]],
    interval: tuple[float, float, float],
    paired: bool,
) -> None:
    test = compare_seeds(baseline, arm)
    assert (test.estimate.value, test.estimate.lo, test.estimate.hi) == pytest.approx(interval, abs=2e-3)
    assert (test.estimate.n, test.paired) == (min(len(baseline), len(arm)), paired)
    assert (test.p, test.sign_p) == (None, None)  # fewer than five seeds


def test_from_five_seeds_on_there_is_a_p_of_student_s_t_and_of_the_sign_test() -> None:
    """Of 1, 2, 3, 4, 5: mean 3, deviation sqrt(2.5), so t = 3 / sqrt(0.5) = 4.2426 with four degrees of freedom."""
    test = compare_seeds(runs(*[0.0] * 5), runs(1, 2, 3, 4, 5))
    assert (test.p, test.sign_p) == (pytest.approx(0.013236, abs=1e-6), 2 / 32)
    welch = compare_seeds(runs(*[0.0] * 5), runs(1, 2, 3, 4, 5, first=9))
    assert (welch.p, welch.sign_p) == (test.p, None)
    assert sign_test([1, 1, -1, 0]) == 1.0
    assert sign_test([0.0]) == 1.0
    assert sign_test([1] * 7 + [-1]) == pytest.approx(2 * 9 / 256)


def test_runs_are_paired_if_one_arm_has_all_seeds_of_the_other() -> None:
    assert seed_pairs(runs(0, 0, 0), runs(0, 0, first=2)) == [(1, 0), (2, 1)]
    assert seed_pairs(runs(0, 0), runs(0, 0, first=2)) == []  # each has a run that the other has no seed for
    assert seed_pairs([(1, 0.0), (1, 0.0)], runs(0, 0)) == []
    assert compare_seeds(runs(0), runs(1, 2)) is None


SEEDS, SPREADS, QUESTIONS = (2, 3, 4, 5, 8, 12), (0.005, 0.02, 0.05), (30, 1_000)


@pytest.mark.parametrize(("seeds", "spread", "questions"), [*product(SEEDS, SPREADS, QUESTIONS)])
@pytest.mark.parametrize("paired", [True, False])
def test_simulated_arms_that_do_not_differ_are_told_apart_in_at_most_5_percent(
    seeds: int, spread: float, questions: int, paired: bool
) -> None:
    """Accuracies with a deviation of half a point to five points between seeds, on the same number of questions."""
    random = np.random.default_rng([seeds, round(1_000 * spread), questions])
    skills = np.clip(random.normal(0.5, spread, size=(REPEATS, 2, seeds)), 0, 1)
    told_apart = false_p = 0
    for baseline, arm in (random.binomial(questions, skills) / questions).tolist():
        test = compare_seeds(runs(*baseline), runs(*arm, first=1 if paired else 100), 1 / questions)
        told_apart += not test.estimate.lo <= 0 <= test.estimate.hi
        false_p += test.p is not None and test.p < 0.05
    assert told_apart / REPEATS <= 0.05 + 2.6 * sqrt(0.05 * 0.95 / REPEATS)
    assert false_p == (told_apart if seeds >= 5 else 0)


@pytest.mark.parametrize(("few", "many"), [(2, 5), (2, 12), (3, 12), (5, 12)])
@pytest.mark.parametrize("spreads", [(0.05, 0.05), (0.02, 0.1), (0.1, 0.02)])
def test_simulated_arms_of_unequal_size_are_told_apart_in_at_most_5_percent(
    few: int, many: int, spreads: tuple[float, float]
) -> None:
    random = np.random.default_rng([few, many, round(100 * spreads[0])])
    arms = (
        random.normal(0, spread, (REPEATS, size)).tolist() for spread, size in zip(spreads, (few, many), strict=True)
    )
    tests = [compare_seeds(runs(*a), runs(*b, first=100)) for a, b in zip(*arms, strict=True)]
    told_apart = sum(test is not None and not test.estimate.lo <= 0 <= test.estimate.hi for test in tests)
    assert told_apart / REPEATS <= 0.05 + 2.6 * sqrt(0.05 * 0.95 / REPEATS)


def test_a_real_difference_is_found_the_more_often_the_more_seeds_there_are() -> None:
    """Ten points, where the differences of pairs have a deviation of seven."""
    random = np.random.default_rng(1)
    powers = []
    for seeds in SEEDS:
        tests = [compare_seeds(runs(*[0.0] * seeds), runs(*random.normal(0.1, 0.07, seeds))) for _ in range(400)]
        powers.append(sum(test is not None and test.estimate.lo > 0 for test in tests) / len(tests))
    assert powers == sorted(powers)
    assert powers[0] < 0.25
    assert powers[-1] > 0.95
