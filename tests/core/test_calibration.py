from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from core.statistics.calibration import Cell, Fold, calibration_check, estimate_accuracy
from core.statistics.estimates import Estimate, share

P_HATS = np.arange(11) / 10


def cells(generator: np.random.Generator, iteration: int, curve: np.ndarray, n: int = 300) -> list[Cell]:
    counts = generator.multinomial(n, np.full(11, 1 / 11))
    right = generator.binomial(counts, curve)
    return [Cell(iteration, *map(float, [p]), int(c), int(r)) for p, c, r in zip(P_HATS, counts, right, strict=True)]


def test_an_estimate_by_hand() -> None:
    # Right: 1 of 4 at 0.2, 3 of 4 at 0.4, 2 of 4 at 0.6 (a fall, so both become 5 of 8), 4 of 4 at 1.
    audited = [Cell(1, 0.2, 4, 1), Cell(1, 0.4, 4, 3), Cell(1, 0.6, 4, 2), Cell(1, 1.0, 4, 4), Cell(1, 0.7, 0, 0)]
    for p_hat, chance in ((0.1, 0.25), (0.2, 0.25), (0.3, 0.4375), (0.4, 0.625), (0.6, 0.625), (0.8, 0.8125), (1.0, 1)):
        estimate = estimate_accuracy(audited, {p_hat: 7})
        assert (estimate.value, estimate.n) == (pytest.approx(chance), 16)
    whole_estimate = estimate_accuracy(audited, {0.2: 10, 0.6: 30})
    assert whole_estimate.value == pytest.approx((10 * 0.25 + 30 * 0.625) / 40)
    assert whole_estimate.lo < whole_estimate.value < whole_estimate.hi
    assert whole_estimate == estimate_accuracy(audited, {0.6: 30, 0.2: 10})  # the seed is fixed
    assert estimate_accuracy([], {0.5: 3}) is None
    assert estimate_accuracy([Cell(1, 0.5, 0, 0)], {0.5: 3}) is None
    assert estimate_accuracy(audited, {}) is None


@given(
    st.dictionaries(st.sampled_from(P_HATS.tolist()), st.tuples(st.integers(1, 30), st.floats(0, 1)), min_size=1),
    st.dictionaries(st.sampled_from(P_HATS.tolist()), st.integers(1, 50), min_size=1),
)
def test_the_estimate_is_that_of_scikit_learn_s_isotonic_regression(
    counts_and_shares: dict, population: dict[float, int]
) -> None:
    audited = [Cell(1, p_hat, n, round(share_right * n)) for p_hat, (n, share_right) in counts_and_shares.items()]
    model = IsotonicRegression(out_of_bounds="clip")
    model.fit([c.p_hat for c in audited], [c.right / c.n for c in audited], [c.n for c in audited])
    expected = np.average(model.predict(list(population)), weights=list(population.values()))
    assert estimate_accuracy(audited, population).value == pytest.approx(float(expected), abs=1e-9)


def test_the_interval_covers_the_accuracy_of_an_iteration_without_audits() -> None:
    """Six audited iterations have curves some three points apart; the seventh is estimated from p_hat alone."""
    generator, covered, trials = np.random.default_rng(7), 0, 120
    shares = np.linspace(2, 0.5, 11) / np.linspace(2, 0.5, 11).sum()
    for _ in range(trials):
        curves = [np.clip(0.05 + 0.9 * P_HATS + generator.normal(0, 0.03), 0, 1) for _ in range(7)]
        audited = [cell for t in range(6) for cell in cells(generator, t, curves[t])]
        population = dict(zip(P_HATS.tolist(), map(int, generator.multinomial(2_000, shares)), strict=True))
        estimate = estimate_accuracy(audited, population)
        covered += estimate.lo <= float(shares @ curves[6]) <= estimate.hi
    assert 0.90 <= covered / trials <= 1


def test_the_interval_is_wider_where_iterations_differ() -> None:
    def audited(apart: int) -> list[Cell]:
        return [Cell(t, 0.5, 400, 200 + (apart if t % 2 else -apart)) for t in range(4)]

    alike, apart = (estimate_accuracy(audited(by), {0.5: 100_000}) for by in (0, 40))
    assert alike.value == apart.value == pytest.approx(0.5)
    assert alike.hi - alike.lo < 0.06
    # Each iteration is 0.1333 away from its estimate by the other three (0.5333 or 0.4667).
    assert apart.hi - apart.value > 1.96 * 0.13


def test_the_calibration_check_estimates_each_iteration_from_the_others() -> None:
    audited = [Cell(1, 0.5, 100, 60), Cell(2, 0.5, 100, 50), Cell(3, 0.5, 100, 10)]
    populations = {t: {0.5: 1_000} for t in (1, 2, 3, 4)}
    measured = {cell.iteration: share(cell.right, cell.n) for cell in audited}
    check = calibration_check(audited, populations, measured)
    assert [fold.iteration for fold in check.folds] == [1, 2, 3]
    assert [fold.estimated.value for fold in check.folds] == pytest.approx([0.3, 0.35, 0.55])
    assert check.error == pytest.approx((0.3 + 0.15 + 0.45) / 3)
    # The errors, -0.3, -0.15 and 0.45, cancel, although 4 would be estimated too high if accuracy fell further.
    assert sum(fold.estimated.value - fold.measured.value for fold in check.folds) == pytest.approx(0)
    assert check.folds[0].estimated.n == 200
    assert check.covered == 3  # of two iterations that differ, an interval has nearly the whole range


def test_a_fold_holds_if_its_interval_has_the_measured_value_and_one_iteration_cannot_be_checked() -> None:
    measured = Estimate(0.6, 0.5, 0.7, 100)
    assert Fold(1, Estimate(0.5, 0.4, 0.6, 200), measured).covered
    assert not Fold(1, Estimate(0.5, 0.4, 0.59, 200), measured).covered
    alone = [Cell(1, 0.5, 100, 60)]
    assert calibration_check(alone, {1: {0.5: 10}}, {1: measured}) is None
    assert calibration_check([*alone, Cell(2, 0.5, 9, 3)], {}, {1: measured}) is None


def test_only_an_audit_shows_that_a_solver_has_become_sure_of_wrong_answers() -> None:
    generator = np.random.default_rng(3)
    honest = [cell for t in (1, 2, 3) for cell in cells(generator, t, 0.05 + 0.9 * P_HATS)]
    collapsed = cells(generator, 4, np.full(11, 0.3))
    population = {cell.p_hat: cell.n for cell in collapsed}
    truth = share(sum(c.right for c in collapsed), sum(c.n for c in collapsed))
    before = estimate_accuracy(honest, population)
    assert before.lo > truth.value  # the estimate is precise and wrong
    after = estimate_accuracy([*honest, *collapsed], population)
    assert after.hi - after.lo > 2 * (before.hi - before.lo)
    check = calibration_check([*honest, *collapsed], {4: population}, {4: truth})
    assert check.covered == 0
    assert check.folds[0].estimated.value - truth.value > 0.1


@pytest.mark.parametrize("right", [0, 5])
def test_audits_that_all_agree_do_not_promise_that_all_labels_do(right: int) -> None:
    audited = [Cell(iteration, 0.6, 5, right) for iteration in (1, 2)]
    assert estimate_accuracy(audited, {0.6: 100}) == share(2 * right, 10)
