"""How often the 95% intervals of shares over items contain the truth, simulated with fixed seeds.

An item is a question with a rate of its own, and k samples of it are right with this rate. The truth is the mean rate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from core.statistics.audits import Stratum, stratified_share
from core.statistics.estimates import (
    Estimate,
    Sums,
    average,
    difference,
    mean_share,
    pair_share,
    paired_share_difference,
)

# Rates: all equal, or from a Beta distribution with these parameters.
EQUAL = (0.05, 0.3, 0.5, 0.9)
BETA = ((0.6, 1.2), (0.8, 1.2), (5, 5), (2, 5), (0.2, 0.2), (1, 3), (1.2, 0.4), (0.5, 2))
SKEWED = ((0.1, 1), (0.2, 1), (0.3, 2), (1, 9))  # a benchmark that is nearly too hard: most rates are nearly 0
SAMPLES = (1, 2, 4, 8, 32)
SIZES = (2, 3, 4, 6, 8, 15, 30, 100, 300, 1_000)
REPEATS = 1_000
ERROR = 0.0069  # the standard error of a coverage of 95% with so many repeats

Rates = float | tuple[float, float]


def drawn(random: np.random.Generator, rates: Rates, shape: tuple[int, ...]) -> tuple[NDArray[np.float64], float]:
    """Rates of items, and the mean rate."""
    if isinstance(rates, float):
        return np.full(shape, rates), rates
    return random.beta(*rates, size=shape), rates[0] / sum(rates)


def coverage(rates: Rates, samples: int, n: int, repeats: int = REPEATS) -> float:
    random = np.random.default_rng([n, samples, *(round(10 * x) for x in np.atleast_1d(rates))])
    of_items, truth = drawn(random, rates, (repeats, n))
    shares = random.binomial(samples, of_items) / samples
    sums = zip(shares.sum(axis=1).tolist(), (shares**2).sum(axis=1).tolist(), strict=True)
    estimates = [mean_share(Sums(n, total, squares)) for total, squares in sums]
    return sum(estimate is not None and estimate.lo <= truth <= estimate.hi for estimate in estimates) / repeats


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    ("population", "least"),
    [
        (BETA, 0.94),
        (EQUAL, 0.94),
        # Rates that are nearly all 0 are the worst case: a few items have the whole mean, and a sample may lack them.
        (SKEWED, 0.935),
    ],
    ids=["beta", "equal", "skewed"],
)
def test_the_interval_of_pass_at_1_contains_the_truth_in_95_percent(
    population: Sequence[Rates], least: float, n: int
) -> None:
    measured = [coverage(rates, samples, n) for rates in population for samples in SAMPLES]
    print(f"n = {n}: {min(measured):.1%} to {max(measured):.1%}, mean {np.mean(measured):.1%}")
    assert min(measured) > least - 3 * ERROR
    # With fewer items it is cautious, as it must be: most of their distribution has not shown.
    if population == BETA and n >= 15:
        assert 0.94 < np.mean(measured) < 0.97
        assert max(measured) < (0.985 if n < 100 else 0.97) + 2 * ERROR
    if population == EQUAL and n >= 300:
        assert max(measured) < 0.985


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("right", [0, 1])
def test_items_that_are_all_right_or_all_wrong_always_contain_the_truth(n: int, right: int) -> None:
    estimate = mean_share([right] * n)
    assert min(abs(estimate.lo - right), abs(estimate.hi - right)) == 0
    assert estimate.hi - estimate.lo > 1 / n


@pytest.mark.parametrize("n", [2, 5, 30, 200])
@pytest.mark.parametrize("share", [0.125, 0.5, 0.75])
def test_items_that_agree_do_not_promise_that_all_do(n: int, share: float) -> None:
    estimate, difference = mean_share([share] * n), paired_share_difference([share] * n, [share] * n)
    assert estimate.lo < share - 0.2 / n < share + 0.2 / n < estimate.hi
    assert difference.lo < -0.5 / n < 0.5 / n < difference.hi


@pytest.mark.parametrize("n", [8, 30, 100, 500])
@pytest.mark.parametrize("samples", [1, 8, 32])
@pytest.mark.parametrize("gain", [0.0, 0.1])
def test_the_interval_of_a_paired_difference_contains_the_truth_in_95_percent(
    n: int, samples: int, gain: float
) -> None:
    """The second model gets `gain` of what the first gets wrong."""
    random = np.random.default_rng([n, samples, round(10 * gain)])
    rates, mean_rate = drawn(random, (0.8, 1.2), (REPEATS, n))
    before = random.binomial(samples, rates) / samples
    after = random.binomial(samples, rates + gain * (1 - rates)) / samples
    truth, held = gain * (1 - mean_rate), 0
    for old, new in zip(before.tolist(), after.tolist(), strict=True):
        estimate = paired_share_difference(old, new)
        held += estimate is not None and estimate.lo <= truth <= estimate.hi
    print(f"n = {n}, {samples} samples, gain {gain}: {held / REPEATS:.1%}")
    assert held / REPEATS > 0.94 - 3 * ERROR
    if n >= 500:  # with fewer it is cautious where the samples are many
        assert held / REPEATS < 0.97


def test_the_interval_of_an_average_over_benchmarks_contains_the_truth_in_95_percent() -> None:
    """Benchmarks of 30, 40 and 500 questions with 32, 32 and one sample, as in R-Zero's suite."""
    random, held, truths = np.random.default_rng(4), 0, []
    suite = [(30, 32, (0.5, 2)), (40, 32, (0.8, 1.2)), (500, 1, (1.2, 0.4))]
    shares = []
    for n, samples, rates in suite:
        of_items, truth = drawn(random, rates, (REPEATS, n))
        shares.append((random.binomial(samples, of_items) / samples).tolist())
        truths.append(truth)
    for of_benchmarks in zip(*shares, strict=True):
        estimate = average([figure for values in of_benchmarks if (figure := mean_share(values))])
        held += estimate.lo <= np.mean(truths) <= estimate.hi
    assert abs(held / REPEATS - 0.95) < 0.01 + 2 * ERROR


def test_an_average_by_hand() -> None:
    """Half-widths 0.3 below and 0.4 below make 0.5, over two benchmarks 0.25."""
    estimate = average([Estimate(0.5, 0.2, 0.6, 10), Estimate(0.7, 0.3, 0.7, 20)])
    assert (estimate.value, estimate.lo, estimate.hi, estimate.n) == pytest.approx((0.6, 0.35, 0.65, 30))


# How often a label is right that got this share of the votes.
RIGHT = {
    "as often as the votes agree": lambda p_hat: p_hat,
    "more often": lambda p_hat: np.minimum(1, p_hat + 0.4),
    "equally often": lambda p_hat: np.full_like(p_hat, 0.3),
    "the less often, the surer": lambda p_hat: 1 - p_hat,
    "hardly ever": lambda p_hat: np.full_like(p_hat, 0.01),
}


@pytest.mark.parametrize("audited", [100, 640])
@pytest.mark.parametrize("right", RIGHT)
def test_the_interval_of_overconfidence_contains_the_truth(right: str, audited: int) -> None:
    """Of 640 labels all are audited, or a sample of two strata, so that its interval is made from those of mean p_hat
    and of label accuracy (`services.oracles.accuracy.overconfidence`)."""
    random, held, chance = np.random.default_rng([audited, *right.encode()]), 0, RIGHT[right]
    p_hats = np.arange(3, 11) / 10
    truth = float((p_hats - chance(p_hats)).mean())
    for _ in range(REPEATS):
        p_hat = random.choice(p_hats, 640)
        of_labels = random.random(640) < chance(p_hat)
        if audited == 640:
            estimate = paired_share_difference(of_labels.astype(float).tolist(), p_hat.tolist())
        else:
            strata = [of_labels[p_hat < 0.6], of_labels[p_hat >= 0.6]]
            drawn = [stratum[: round(audited * len(stratum) / 640)] for stratum in strata]
            counts = [Stratum(len(a), len(b), int(b.sum())) for a, b in zip(strata, drawn, strict=True)]
            estimate = difference(mean_share(p_hat.tolist()), stratified_share(counts))
        held += estimate.lo <= truth <= estimate.hi
    print(f"labels are right {right}, {audited} audits: {held / REPEATS:.1%}")
    assert 0.935 - 2 * ERROR < held / REPEATS < 0.98 + 2 * ERROR


@pytest.mark.parametrize("n", [20, 100, 640])
@pytest.mark.parametrize("kinds", [[0.99, 0.01], [0.3, 0.2, *[0.5 / 2_000] * 2_000], [0.1] * 10, [0.001] * 1_000])
def test_the_interval_of_the_share_of_pairs_contains_the_truth(kinds: list[float], n: int) -> None:
    """It is too wide where all kinds are equally common."""
    random, truth = np.random.default_rng([n, len(kinds)]), float(np.square(kinds).sum())
    estimates = [pair_share(counts[counts > 0].tolist()) for counts in random.multinomial(n, kinds, REPEATS)]
    held = sum(estimate.lo <= truth <= estimate.hi for estimate in estimates)
    print(f"{len(kinds)} kinds, n = {n}: {held / REPEATS:.1%}")
    assert held / REPEATS > 0.94 - 2 * ERROR
    values = np.array([estimate.value for estimate in estimates])
    assert values.mean() == pytest.approx(truth, abs=3 * values.std() / REPEATS**0.5)  # whatever n is
