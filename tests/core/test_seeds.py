"""Figures over seeds, the paired bootstrap, and the average over benchmarks."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from core.statistics.seeds import average_bootstrap, over_seeds, paired_bootstrap


def test_the_mean_over_seeds_has_student_s_interval() -> None:
    # mean 0.6, standard deviation 0.1, and the 97.5% quantile of t with two degrees of freedom is 4.302653
    estimate = over_seeds([0.5, 0.6, 0.7], is_share=False)
    assert estimate is not None
    half = 4.302653 * 0.1 / sqrt(3)
    assert (estimate.value, estimate.lo, estimate.hi) == pytest.approx((0.6, 0.6 - half, 0.6 + half), abs=1e-6)
    assert estimate.n == 3
    assert over_seeds([0.5], is_share=True) is None


def test_the_interval_of_a_share_over_seeds_stays_within_0_and_1() -> None:
    # Student's interval alone would be 0.2 or 0.8 ± 12.706 * 0.1
    low, high = over_seeds([0.1, 0.3], is_share=True), over_seeds([0.7, 0.9], is_share=True)
    assert low is not None
    assert high is not None
    assert (low.lo, high.hi) == (0, 1)
    assert low.hi == pytest.approx(1)
    whole = over_seeds([0.1, 0.3], is_share=False)
    assert whole is not None
    assert whole.hi == pytest.approx(0.2 + 12.7062 * 0.1, abs=1e-4)


def test_the_bootstrap_of_one_seed_has_the_binomial_interval() -> None:
    """Of 400 questions 240 differ by 1: the mean is 0.6, its standard error sqrt(0.24 / 400) = 0.0245."""
    difference = paired_bootstrap([[1.0] * 240 + [0.0] * 160])
    assert difference.estimate.value == pytest.approx(0.6)
    half = 1.96 * sqrt(0.24 / 400)
    assert (difference.estimate.lo, difference.estimate.hi) == pytest.approx((0.6 - half, 0.6 + half), abs=0.006)
    assert difference.p == pytest.approx(2 / 2_001)  # no draw is on the other side
    assert (difference.estimate.n, difference.by_seed) == (400, [pytest.approx(0.6)])


def test_equal_arms_do_not_differ() -> None:
    difference = paired_bootstrap([[0.0] * 50] * 3)
    assert (difference.estimate.value, difference.estimate.lo, difference.estimate.hi, difference.p) == (0, 0, 0, 1)


def test_seeds_that_disagree_widen_the_interval() -> None:
    questions = np.tile([1.0, 0.0], 100)
    agreeing = paired_bootstrap([questions.tolist(), questions.tolist()])
    disagreeing = paired_bootstrap([(questions * 2).tolist(), (questions * 0).tolist()])
    assert agreeing.estimate.value == disagreeing.estimate.value == 0.5
    assert disagreeing.estimate.hi - disagreeing.estimate.lo > 3 * (agreeing.estimate.hi - agreeing.estimate.lo)
    assert disagreeing.by_seed == [1, 0]
    # With two seeds, a quarter of the draws takes the seed without a difference twice; p is two-sided.
    assert disagreeing.p == pytest.approx(0.5, abs=0.05)


def test_the_same_results_give_the_same_numbers() -> None:
    differences = np.random.default_rng(3).normal(0.02, 1, size=(3, 100)).tolist()
    assert paired_bootstrap(differences) == paired_bootstrap(differences)


def test_every_benchmark_counts_the_same_as_in_r_zero_s_table_1() -> None:
    # Qwen3-4B-Base with R-Zero; the paper's average is 49.07, though GSM8K has 44 times as many questions as AIME.
    figures = {"amc": 57.27, "minerva": 52.94, "math": 79.6, "gsm8k": 92.12, "olympiad": 44.59, "aime25": 4.27}
    sizes = {"amc": 40, "minerva": 272, "math": 500, "gsm8k": 1_319, "olympiad": 675, "aime25": 30}
    benchmarks = [[value] * sizes[name] for name, value in figures.items()] + [[12.71] * 30]
    average = average_bootstrap(benchmarks)
    assert average.estimate.value == pytest.approx(49.07, abs=0.005)
    # No benchmark's questions differ, so no draw does.
    assert (average.estimate.lo, average.estimate.hi) == pytest.approx((average.estimate.value,) * 2)
    assert average.estimate.n == 40 + 272 + 500 + 1_319 + 675 + 2 * 30


def test_the_average_s_interval_is_over_the_questions_within_each_benchmark() -> None:
    """240 of 400 questions and 50 of 100: the average is 0.55, the variance (0.24 / 400 + 0.25 / 100) / 4."""
    average = average_bootstrap([[1.0] * 240 + [0.0] * 160, [1.0, 0.0] * 50])
    half = 1.96 * sqrt((0.24 / 400 + 0.25 / 100) / 4)
    assert average.estimate.value == pytest.approx(0.55)
    assert (average.estimate.lo, average.estimate.hi) == pytest.approx((0.55 - half, 0.55 + half), abs=0.006)
    assert average.p == pytest.approx(2 / 2_001)  # no draw is on the other side of 0


def test_benchmarks_of_one_size_are_drawn_from_independently() -> None:
    """Twice 50 of 100: the same draws for both would give the interval of one, which is wider by the root of 2."""
    average = average_bootstrap([[1.0, 0.0] * 50] * 2).estimate
    assert average.hi - average.lo == pytest.approx(2 * 1.96 * sqrt(0.25 / 100 / 2), abs=0.015)


def test_one_benchmark_alone_has_the_paired_bootstrap_s_interval() -> None:
    differences = np.random.default_rng(3).choice([-1.0, 0.0, 1.0], 300, p=[0.2, 0.5, 0.3]).tolist()
    alone, paired = average_bootstrap([differences]), paired_bootstrap([differences])
    assert alone.estimate.value == paired.estimate.value
    assert (alone.estimate.lo, alone.estimate.hi, alone.p) == pytest.approx(
        (paired.estimate.lo, paired.estimate.hi, paired.p), abs=0.012
    )
