"""The guard's signs in a run's series: their thresholds by hand, and how often chance shows them in simulated runs:
`pytest tests/core/test_signs.py -k simulated -s` prints it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from core.statistics.alerts import Alerts
from core.statistics.changes import Point, SeriesKey
from core.statistics.estimates import Estimate, mean, pair_share, paired_share_difference, share, t95
from core.statistics.signs import REACH, signs_in

ALERTS = Alerts()
GAP, ASKED, SOLVED = (
    SeriesKey("overconfidence", "kept", "exact"),
    SeriesKey("asked_difficulty", "kept"),
    SeriesKey("solved_difficulty"),
)
SPLIT, SAME = SeriesKey("split_share", "all"), SeriesKey("same_skeleton_share", "all")
Series = dict[SeriesKey, list[Point]]


def point(value: float, error: float = 0.03, n: int = 200, t: int = 1) -> Point:
    """A mean with this standard error."""
    half = t95(n - 1) * error
    return Point(t, value, value - half, value + half, n, "mean")


def of(estimate: Estimate | None, t: int) -> Point:
    assert estimate is not None
    return Point(t, estimate.value, estimate.lo, estimate.hi, estimate.n, estimate.interval)


def shares(key: SeriesKey, counts: Sequence[int], n: int = 400) -> Series:
    return {key: [of(share(count, n), t) for t, count in enumerate(counts, 1)]}


def signals(series: Series, iteration: int | None = None) -> list[str]:
    last = max((point.iteration for points in series.values() for point in points), default=1)
    return [sign.signal for sign in signs_in(iteration or last, series, ALERTS)]


# Of the rate 0.05 each of ten iterations has a tenth: 0.005, t = 2.60076 with 199 degrees of freedom, and a standard
# error of 0.03 makes it 0.078023. With two oracles each has half: t = 2.83867, or 0.085160.
# Twice the solved 5.0 with an error of 0.1 is 10.0 -+ 0.2; with one of 0.15 for the asked, sqrt(0.04 + 0.0225) = 0.25.
# So the asked are out of reach above 10.0 + 2.60076 * 0.25 = 10.65019.
# `unanimity` and `monotony` share the rate: 0.025 * 0.9 / 10, z = 2.84138. 400 of 2,000 pooled with 40 of 400 have a
# standard error of sqrt(0.18333 * 0.81667 / 333.33) = 0.021194; 0.0602 is less than the ten points that count.
@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ({GAP: [point(0.0781)]}, ["overconfidence"]),
        ({GAP: [point(0.0779)]}, []),
        ({GAP: [point(-0.4)]}, []),
        ({GAP: [point(0.0781)], GAP._replace(oracle="judge"): [point(0.0)]}, []),
        ({GAP: [point(0.0853)], GAP._replace(oracle="judge"): [point(0.0)]}, ["overconfidence"]),
        ({GAP: [point(0.3, n=100)]}, ["overconfidence"]),
        ({GAP: [point(0.3, n=99)]}, []),  # alerts.min_n
        ({GAP: [replace(point(0.3), lo=None, hi=None)]}, []),
        ({GAP._replace(over="all"): [point(0.3)]}, []),  # the Solver learns from the kept
        ({GAP: [point(0.3), point(0.0, t=2)]}, []),  # of an earlier iteration
        ({ASKED: [point(10.6503, 0.15)], SOLVED: [point(5.0, 0.1)]}, ["out_of_reach"]),
        ({ASKED: [point(10.6501, 0.15)], SOLVED: [point(5.0, 0.1)]}, []),
        ({ASKED: [point(20.0, 0.15)]}, []),  # nobody knows what the Solver solves
        ({ASKED: [point(20.0, 0.15)], SOLVED: [point(5.0, 0.1, n=99)]}, []),
        ({ASKED._replace(over="all"): [point(20.0)], SOLVED: [point(5.0)]}, []),
        (shares(SPLIT, [80] * 5 + [39]), ["unanimity"]),
        (shares(SPLIT, [80] * 5 + [41]), []),
        (shares(SPLIT, [80] * 5 + [200]), []),  # more questions split the votes
        (shares(SAME, [80] * 5 + [121]), ["monotony"]),
        (shares(SAME, [80] * 5 + [119]), []),
        (shares(SAME, [80] * 5 + [10]), []),
        (shares(SPLIT, [80] * 5 + [10], n=99), []),
        (shares(SeriesKey("p_hat", "all"), [80] * 5 + [10]), []),  # a drift rule tests it
        ({}, []),
    ],
)
def test_what_is_a_sign(series: Series, expected: list[str]) -> None:
    assert signals(series) == expected


def test_a_sign_says_what_was_measured_and_which_threshold_it_crossed() -> None:
    series = {GAP: [point(0.14)], ASKED: [point(12.5, 0.15)], SOLVED: [point(5.0, 0.1)]}
    gap, reach = signs_in(1, series, ALERTS)
    assert (gap.value, gap.threshold) == (0.14, pytest.approx(0.078023, abs=1e-6))
    assert all(words in gap.text for words in ("14.0 points", "exact", "n = 200"))
    assert (reach.value, reach.threshold) == (12.5, pytest.approx(10.650190, abs=1e-5))
    assert all(words in reach.text for words in ("12.5 operations", "5.0", "n = 200"))
    [fall] = signs_in(6, shares(SPLIT, [80] * 5 + [20]), ALERTS)
    assert (fall.value, fall.threshold) == (pytest.approx(0.05), pytest.approx(0.1))


def test_an_iteration_s_signs_do_not_depend_on_later_ones() -> None:
    series = shares(SPLIT, [80, 80, 20, 80, 10])
    assert signals(series, 3) == signals({SPLIT: series[SPLIT][:3]}) == ["unanimity"]


# Simulated runs of ten iterations, with the sizes of the tiny world's long preset: 640 candidates, of which 220 are
# kept, ten votes each, and a benchmark of 1,023 questions.

ITERATIONS, RUNS, KEPT, ASKED_ALL = 10, 1_000, 220, 640
ERROR = 0.0069  # the standard error of a share of 5% of so many runs
Drawn = Callable[[np.random.Generator, int], Series]


def calibrated(
    rng: np.random.Generator, t: int, chance_of_right: Callable[[np.ndarray], np.ndarray] = lambda p: p
) -> Series:
    """Labels that are right as often as the votes agree: the line that overconfidence crosses."""
    p_hat = rng.integers(3, 8, KEPT) / 10
    right = rng.random(KEPT) < chance_of_right(p_hat)
    return {GAP: [of(paired_share_difference(right.astype(float).tolist(), p_hat.tolist()), t)]}


def just_in_reach(rng: np.random.Generator, t: int) -> Series:
    """Questions of twice as many operations as what the Solver solves, on average."""
    solved = rng.integers(1, 10, 700)  # 5 on average
    asked = rng.poisson(REACH * 5 - 1, KEPT) + 1
    return {SOLVED: [of(mean(solved.tolist()), t)], ASKED: [of(mean(asked.tolist()), t)]}


def equally_split(rng: np.random.Generator, t: int) -> Series:
    return {SPLIT: [of(share(int(rng.binomial(ASKED_ALL, 0.4)), ASKED_ALL), t)]}


SKELETONS = np.concatenate([[0.2, 0.15, 0.1], np.full(500, 0.55 / 500)])  # three common ones, and many rare ones


def equally_alike(rng: np.random.Generator, t: int) -> Series:
    return {SAME: [of(pair_share([c for c in rng.multinomial(ASKED_ALL, SKELETONS).tolist() if c]), t)]}


def runs_with(signal: str, drawn: Drawn) -> float:
    """The share of simulated runs in which any iteration shows the signal."""
    rng, runs = np.random.default_rng(40), 0
    for _ in range(RUNS):
        series: Series = {}
        for t in range(1, ITERATIONS + 1):
            for key, points in drawn(rng, t).items():
                series.setdefault(key, []).extend(points)
        runs += any(signal in signals(series, t) for t in range(1, ITERATIONS + 1))
    print(f"\n{signal}: {runs} of {RUNS}")
    return runs / RUNS


@pytest.mark.parametrize(
    ("signal", "drawn"),
    [
        ("overconfidence", calibrated),
        ("overconfidence", lambda rng, t: calibrated(rng, t, lambda p: 1 - p)),  # the surer, the more often wrong
        ("out_of_reach", just_in_reach),
        ("unanimity", equally_split),
        ("monotony", equally_alike),
    ],
)
def test_simulated_runs_that_only_touch_the_line_seldom_show_the_sign(signal: str, drawn: Drawn) -> None:
    assert runs_with(signal, drawn) <= ALERTS.rate + 2 * ERROR


# Label accuracy of the kept questions in ten iterations of R-Zero on the long tiny world, with one seed.
COLLAPSE = (0.958, 0.932, 0.909, 0.841, 0.364, 0.109, 0.049, 0.009, 0.003, 0.006)


def test_simulated_collapses_show_overconfidence_in_the_iteration_in_which_labels_become_wrong() -> None:
    rng, first = np.random.default_rng(41), list[int | None]()
    for _ in range(RUNS):
        drawn = [calibrated(rng, t, lambda p, a=a: np.full_like(p, a)) for t, a in enumerate(COLLAPSE, 1)]
        series = {GAP: [point for of_iteration in drawn for point in of_iteration[GAP]]}
        first.append(next((t for t in range(1, ITERATIONS + 1) if signals(series, t)), None))
    print(f"\nfirst in iteration 5: {first.count(5)}, in iteration 6: {first.count(6)} of {RUNS}")
    assert first.count(5) + first.count(6) == RUNS
    assert first.count(5) >= 0.85 * RUNS
