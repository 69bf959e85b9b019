from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm, t

from core.statistics.estimates import (
    Estimate,
    Sums,
    difference,
    mean,
    mean_share,
    pair_share,
    paired_share_difference,
    share,
    wilson,
    wilson_at,
)


def test_the_interval_of_a_share_by_hand() -> None:
    # 8 of 10, t = 2.262157, t² = 5.117355: centre (0.8 + 0.255868) / 1.511735 = 0.698447,
    # half 2.262157 * sqrt(0.016 + 0.012793) / 1.511735 = 0.253917. Of two failures, the upper limit is above that.
    low, high = wilson(8, 10)
    assert low == pytest.approx(0.444530, abs=1e-6)
    assert high == pytest.approx(binomtest(2, 10, alternative="greater").proportion_ci(0.95).low * -1 + 1, abs=1e-9)


@given(st.integers(8, 5000), st.data())
def test_the_interval_of_a_share_is_wilson_s_with_student_s_quantile(n: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(4, n - 4))
    expected = binomtest(successes, n).proportion_ci(2 * norm.cdf(t.ppf(0.975, n - 1)) - 1, method="wilson")
    assert wilson(successes, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


@given(st.integers(1, 10**9), st.data())
def test_wilson_s_interval_has_the_share_in_it_and_stays_in_range(n: int, data: st.DataObject) -> None:
    successes = data.draw(st.sampled_from([0, 1, n - 1, n]) | st.integers(0, n))
    lo, hi = wilson(successes, n)
    assert 0 <= lo <= successes / n <= hi <= 1
    assert lo < hi


def test_a_share_has_its_interval_and_its_n_and_too_few_items_have_no_estimate() -> None:
    assert share(8, 10) == Estimate(0.8, *wilson(8, 10), 10)
    assert [wilson(0, 0), share(0, 0), mean([]), mean([0.5]), mean_share([])] == [None] * 5
    assert math.isnan(mean_share([math.nan, 0.5]).value)


@pytest.mark.parametrize(("successes", "n"), [(-1, 5), (6, 5), (1, 0)])
def test_more_successes_than_trials_are_refused(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match=r"^successes: "):
        wilson(successes, n)


@given(st.lists(st.integers(0, 8).map(lambda right: right / 8), max_size=60))
def test_sums_give_the_same_interval_as_the_values(values: list[float]) -> None:
    sums = Sums(len(values), sum(values), sum(value * value for value in values))
    for estimate in (mean, mean_share):
        from_sums, from_values = estimate(sums), estimate(values)
        assert (from_sums is None) == (from_values is None)
        if from_sums and from_values:
            assert (from_sums.value, from_sums.lo, from_sums.hi) == pytest.approx(
                (from_values.value, from_values.lo, from_values.hi), abs=1e-7
            )
            assert from_sums.n == len(values)


def test_a_mean_of_shares_has_the_interval_of_a_share_at_the_effective_number_of_items() -> None:
    # 0, 1/2, 1/2, 1: the squares around 1/2 add up to 1/2, and those of four items that are 0 or 1 to 1. Both get 0.1.
    estimate = mean_share([0, 0.5, 0.5, 1])
    assert estimate == Estimate(0.5, *wilson_at(0.5, 4 * 1.1 / 0.6, 4), 4)
    assert share(2, 4).lo < estimate.lo
    assert mean_share([0.5]).hi - mean_share([0.5]).lo > 0.97  # one item does not show the spread
    assert mean_share([0, 0, 0, 1]) == share(1, 4)
    # All four wrong: Wilson's interval for 0 of 4, whose upper end is t² / (4 + t²).
    assert mean_share([0, 0, 0, 0]) == Estimate(0.0, 0.0, pytest.approx(10.12795 / 14.12795), 4)
    assert mean_share(Sums(4, 4.0, 4.0)) == share(4, 4)


@given(st.integers(1, 400), st.data())
def test_items_that_are_right_or_wrong_have_one_interval_as_counts_and_as_shares(n: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, n))
    of_shares, of_counts = mean_share([1.0] * right + [0.0] * (n - right)), share(right, n)
    assert (of_shares.lo, of_shares.hi) == pytest.approx((of_counts.lo, of_counts.hi), abs=1e-9)


def test_a_mean_by_hand() -> None:
    # Four items of 8 samples each: means 0, 1/2, 1/2, 1. Mean 1/2, variance (1/4 + 1/4) / 3 = 1/6,
    # standard error sqrt(1/24) = 0.204124, times t with three degrees of freedom.
    half = 3.182446 * math.sqrt(1 / 24)
    estimate = mean([0, 0.5, 0.5, 1])
    assert (estimate.value, estimate.n) == (0.5, 4)
    assert (estimate.lo, estimate.hi) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-6)


def test_the_interval_is_computed_over_items_and_not_over_samples() -> None:
    # If samples of one item counted as independent, the interval would be sqrt(8) times too narrow.
    items = [0.0, 1.0] * 50
    samples = [item for item in items for _ in range(8)]
    assert mean(items).hi - 0.5 > 2.8 * (mean(samples).hi - 0.5)


def test_a_paired_difference_needs_as_many_values_after_as_before() -> None:
    with pytest.raises(ValueError, match=r"^after: "):
        paired_share_difference([0.1, 0.2], [0.1])


def test_the_share_of_pairs_of_one_kind_by_hand() -> None:
    # Of three, one and one items, 3 of 10 pairs are of one kind. Of the others, half, half, half, none and none are of
    # an item's kind: their variance is (3 * 0.2² + 2 * 0.3²) / 5 = 0.06, and that of the share is
    # (4 * 3 * 0.06 + 2 * 0.3 * 0.7) / 20 = 0.057, as of 0.21 / 0.057 = 3.684 independent pairs.
    estimate = pair_share([1, 3, 1])
    assert (estimate.value, estimate.n, estimate.interval) == (pytest.approx(0.3), 5, "share")
    assert (estimate.lo, estimate.hi) == pytest.approx(wilson_at(0.3, 0.21 / 0.057, 5))
    assert pair_share([1, 1, 1]) == Estimate(0.0, *wilson_at(0.0, 3, 3), 3)
    assert pair_share([4]) == Estimate(1.0, *wilson_at(1.0, 4, 4), 4)
    assert [pair_share([]), pair_share([1])] == [None, None]


def test_equal_values_have_no_spread_though_their_sums_are_rounded() -> None:
    """In floating point 3 * 0.1² < (3 * 0.1)²/3, which would make the variance negative."""
    total, squares = 0.1 + 0.1 + 0.1, 0.1**2 + 0.1**2 + 0.1**2
    assert squares < 3 * (total / 3) ** 2
    assert mean(Sums(3, total, squares)) == Estimate(total / 3, total / 3, total / 3, 3)


@pytest.mark.parametrize(
    ("after", "before", "expected"),
    [
        ((56, 70), (48, 80), (0.0524, 0.3339)),
        ((9, 10), (3, 10), (0.1705, 0.8090)),
        ((0, 10), (0, 20), (-0.1611, 0.2775)),
    ],
)
def test_the_interval_of_a_difference_of_shares_is_newcombe_s(
    after: tuple[int, int], before: tuple[int, int], expected: tuple[float, float]
) -> None:
    """Newcombe 1998, table II, method 10, from Wilson's intervals."""
    wilsons = [(x / n, binomtest(x, n).proportion_ci(method="wilson"), n) for x, n in (after, before)]
    change = difference(*(Estimate(value, interval.low, interval.high, n) for value, interval, n in wilsons))
    assert (change.lo, change.hi) == pytest.approx(expected, abs=2e-4)


def test_the_interval_of_a_difference_of_means_is_the_normal_one() -> None:
    change = difference(Estimate(5.0, 4.0, 6.0, 10), Estimate(3.0, 1.0, 5.0, 20))
    assert (change.value, change.lo, change.hi, change.n) == (2.0, 2 - math.sqrt(5), 2 + math.sqrt(5), 10)
