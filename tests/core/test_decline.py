"""The test of a decline: its p by hand, and simulated runs of a Solver that does not change, and of one that falls."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.statistics.alerts import Alerts
from core.statistics.decline import fall_from, fall_p
from core.statistics.guard import Guard
from core.types import Evaluated

ALERTS, POINTS = Alerts(), Guard.decline_points


@given(st.lists(st.integers(-4, 4), max_size=8))
def test_p_is_the_share_of_all_signs_with_so_low_a_sum(differences: list[int]) -> None:
    signs = [*product((1, -1), repeat=len(differences))]
    sums = [sum(sign * abs(size) for sign, size in zip(of, differences, strict=True)) for of in signs]
    expected = Fraction(sum(total <= sum(differences) for total in sums), len(signs))
    assert fall_p(differences) == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize(
    ("differences", "p"),
    [([], 1.0), ([0] * 30, 1.0), ([-1] * 9, 2**-9), ([-8] * 9 + [0] * 21, 2**-9), ([1] * 9, 1.0), ([-1] * 40, 2**-40)],
)
def test_p_by_hand(differences: list[int], p: float) -> None:
    assert fall_p(differences) == pytest.approx(p, abs=1e-14)


def test_a_wide_range_takes_the_normal_distribution() -> None:
    """A thousand questions with 1,024 samples each are as good as infinitely many."""
    differences = [*np.random.default_rng(1).integers(-512, 500, 1_000).tolist(), 1]
    assert fall_p(differences) == pytest.approx(fall_p([round(d / 8) for d in differences]), rel=0.1)


def results(correct: np.ndarray, samples: int, first: int = 0) -> list[Evaluated]:
    return [Evaluated(f"q{i}", None, samples, right, False, False) for i, right in enumerate(correct.tolist(), first)]


def test_a_fall_is_on_the_questions_that_both_have() -> None:
    best, now = np.array([4, 4, 4, 4]), np.array([1, 2, 4])
    fall = fall_from(results(best, 4), results(now, 4, first=2), 3, ALERTS)
    assert (fall.best, fall.now, fall.n, fall.p) == (1.0, 0.375, 2, pytest.approx(0.25))
    assert fall.limit == pytest.approx(0.05 / 10 / 3)
    assert fall_from(results(best, 4), results(now, 4, first=9), 3, ALERTS) is None
    # Two of four samples are as many as four of eight.
    other = fall_from(results(np.array([2, 3]), 4), results(np.array([4, 5]), 8), 1, ALERTS)
    assert (other.points, other.p) == (pytest.approx(1 / 16), pytest.approx(0.5))


def alarms_of(random: np.random.Generator, n: int, samples: int, fall: float = 0.0, since: int = 6) -> list[int]:
    """The iterations of a run of ten, after the base model, in which the guard's `decline` shows. The rates of the
    questions are from Beta(0.6, 1.2); from the iteration `since` on, their mean is lower by `fall`."""
    rates = random.beta(0.6, 1.2, size=n)
    lower = np.clip(rates * (1 - fall / rates.mean()), 0, 1)
    counts = [random.binomial(samples, lower if t >= since else rates) for t in range(ALERTS.iterations + 1)]
    alarms = []
    for t in range(1, len(counts)):
        best = max(range(t), key=lambda i: (counts[i].sum(), -i))
        if counts[best].sum() - counts[t].sum() <= POINTS * n * samples:
            continue
        fall_now = fall_from(results(counts[best], samples), results(counts[t], samples), t, ALERTS)
        if fall_now.p <= fall_now.limit:
            alarms.append(t)
    return alarms


# AIME, AMC, GPQA, MATH-500 and the tiny world's benchmark, with the samples of the shipped presets; the least share of
# runs in which a fall of ten points shows within five iterations.
BENCHMARKS = [
    (30, 1, 0.0),
    (30, 8, 0.75),
    (30, 32, 0.99),
    (40, 8, 0.9),
    (198, 8, 0.99),
    (500, 1, 0.98),
    (500, 8, 0.99),
    (1_020, 8, 0.99),
    (1_023, 4, 0.99),
]


@pytest.mark.parametrize(("n", "samples", "power"), BENCHMARKS)
def test_simulated_runs_whose_solver_does_not_change_seldom_decline_and_those_that_fall_do(
    n: int, samples: int, power: float
) -> None:
    random, repeats = np.random.default_rng([n, samples]), max(80, min(400, 20_000 // n))
    false = sum(bool(alarms_of(random, n, samples)) for _ in range(repeats))
    runs = [alarms_of(random, n, samples, fall=0.1) for _ in range(repeats // 2)]
    alarmed = sum(any(t >= 6 for t in alarms) for alarms in runs)
    print(f"{n} x {samples}: {false} of {repeats} stable runs, {alarmed} of {len(runs)} that fall")
    assert false / repeats <= ALERTS.rate
    assert alarmed / len(runs) >= power


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("moved", [0.0, 1.0])
def test_simulated_flat_runs_of_ten_iterations_seldom_decline_by_the_exact_test_alone(
    samples: int, moved: float
) -> None:
    """1,023 questions, without the three points below which no fall counts. Each training leaves the rates of the
    questions as they are, or moves each of them, in either direction, by so many logits."""
    random, repeats = np.random.default_rng([1_023, samples, round(moved)]), 500
    declined = 0
    for _ in range(repeats):
        rates = np.clip(random.beta(0.6, 1.2, size=1_023), 1e-4, 1 - 1e-4)
        logits = np.log(rates / (1 - rates)) + moved * random.standard_normal((ALERTS.iterations + 1, 1_023))
        declined += declines(random.binomial(samples, 1 / (1 + np.exp(-logits))), samples)
    print(f"1,023 x {samples}, moved by {moved} logits: {declined} of {repeats}")
    assert 0.01 < declined / repeats <= ALERTS.rate


def test_simulated_trainings_that_move_all_questions_alike_decline() -> None:
    """The luck of a training moves the rates of 1,023 questions by 0.05 logits, which is 0.7 points of pass@1. The fall
    is no chance of the questions, but no decline either: the signal cannot tell."""
    random, repeats = np.random.default_rng(17), 200
    declined = 0
    for _ in range(repeats):
        rates = np.clip(random.beta(0.6, 1.2, size=1_023), 1e-4, 1 - 1e-4)
        logits = np.log(rates / (1 - rates)) + 0.05 * random.standard_normal((ALERTS.iterations + 1, 1))
        declined += declines(random.binomial(4, 1 / (1 + np.exp(-logits))), 4, POINTS)
    print(f"1,023 x 4, all moved alike: {declined} of {repeats}")
    assert declined / repeats > 0.2


def declines(counts: np.ndarray, samples: int, points: float = 0.0) -> bool:
    """Whether any iteration of a run has a significant fall by more than `points`. `counts` has the right answers to
    each question."""
    totals = counts.sum(axis=1)
    for t in range(1, len(counts)):
        best = counts[totals[:t].argmax()]
        # No fall of less than 2.5 standard errors has a p of 0.005; to compute it exactly takes most of the time.
        if (counts[t] - best).sum() < -2.5 * np.sqrt(((counts[t] - best) ** 2).sum()):
            fall = fall_from(results(best, samples), results(counts[t], samples), t, ALERTS)
            if fall.p <= fall.limit and fall.points > points:
                return True
    return False
