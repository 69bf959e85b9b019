"""Figures over seeds, and the paired bootstrap."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from core.statistics.seeds import over_seeds, paired_bootstrap


def test_the_mean_over_seeds_has_student_s_interval() -> None:
    # mean 0.6, standard deviation 0.1, and the 97.5% quantile of t with two degrees of freedom is 4.302653
    estimate = over_seeds([0.5, 0.6, 0.7])
    assert estimate is not None
    half = 4.302653 * 0.1 / sqrt(3)
    assert (estimate.value, estimate.lo, estimate.hi) == pytest.approx((0.6, 0.6 - half, 0.6 + half), abs=1e-6)
    assert estimate.n == 3
    assert over_seeds([0.5]) is None


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
