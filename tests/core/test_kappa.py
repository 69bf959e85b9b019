from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from core.statistics.estimates import wilson_at
from core.statistics.kappa import kappa

# Fleiss, Levin and Paik (2003), table 18.1: 100 cases, two raters, three categories; kappa 0.68, error 0.087.
FLEISS = {
    ("right", "right"): 75,
    ("right", "wrong"): 1,
    ("right", "ill_posed"): 4,
    ("wrong", "right"): 5,
    ("wrong", "wrong"): 4,
    ("wrong", "ill_posed"): 1,
    ("ill_posed", "ill_posed"): 10,
}


def test_kappa_of_the_textbook_s_table() -> None:
    estimate = kappa({**FLEISS, ("unknown", "right"): 30})
    assert (estimate.value, estimate.n) == (pytest.approx(0.676, abs=5e-4), 100)  # (0.89 - 0.66) / (1 - 0.66)
    assert (estimate.hi - estimate.value) / 1.98422 == pytest.approx(0.0877, abs=1e-4)
    assert estimate.lo == pytest.approx((wilson_at(0.89, 100, 100)[0] - 0.66) / (1 - 0.66), abs=2e-3)  # the wider one


VERDICTS = st.sampled_from(["right", "wrong", "ill_posed"])


@given(st.lists(st.tuples(VERDICTS, VERDICTS), min_size=1, max_size=200))
def test_kappa_is_that_of_scikit_learn(pairs: list) -> None:
    estimate = kappa(pairs)
    if len(set(pairs)) == 1 and pairs[0][0] == pairs[0][1]:
        assert estimate is None
    else:
        assert estimate.value == pytest.approx(cohen_kappa_score(*zip(*pairs, strict=True)), abs=1e-12)
        assert -1 <= estimate.lo <= estimate.value <= estimate.hi <= 1
        assert kappa(Counter(pairs)) == estimate


def test_the_interval_of_complete_agreement_is_wider_with_fewer_cases() -> None:
    few, many = (
        kappa([("right", "right"), ("wrong", "wrong")] * 5),
        kappa([("right", "right"), ("wrong", "wrong")] * 500),
    )
    assert (few.value, few.hi, many.value, many.hi) == (1, 1, 1, 1)
    assert few.lo < 0.6 < 0.98 < many.lo
    assert kappa([]) is None
    assert kappa([("unknown", "right")]) is None


def test_the_interval_of_kappa_covers() -> None:
    generator = np.random.default_rng(2)
    table = np.array([[0.55, 0.05, 0.02], [0.08, 0.2, 0.01], [0.01, 0.02, 0.06]])
    names, n = ["right", "wrong", "ill_posed"], 300
    chance = float(table.sum(1) @ table.sum(0))
    truth = (float(np.trace(table)) - chance) / (1 - chance)
    covered = 0
    for counts in generator.multinomial(n, table.ravel(), size=2_000):
        cells = dict(zip([(a, b) for a in names for b in names], map(int, counts), strict=True))
        covered += (estimate := kappa(cells)).lo <= truth <= estimate.hi
    assert 0.93 <= covered / 2_000 <= 0.97


@pytest.mark.parametrize("n", [2, 3, 5, 10, 20, 50, 200])
@pytest.mark.parametrize("cells", [(0.45, 0.05, 0.05, 0.45), (0.7, 0.1, 0.1, 0.1), (0.9, 0.04, 0.03, 0.03)])
def test_the_interval_of_kappa_covers_with_few_pairs_and_is_no_point(n: int, cells: tuple[float, ...]) -> None:
    generator, names = np.random.default_rng(3), [(a, b) for a in ("right", "wrong") for b in ("right", "wrong")]
    chance = (cells[0] + cells[1]) * (cells[0] + cells[2]) + (cells[3] + cells[1]) * (cells[3] + cells[2])
    truth = (cells[0] + cells[3] - chance) / (1 - chance)
    drawn = [kappa(dict(zip(names, map(int, counts), strict=True))) for counts in generator.multinomial(n, cells, 600)]
    estimates = [estimate for estimate in drawn if estimate is not None]
    assert all(estimate.hi - estimate.lo > 0.1 for estimate in estimates)
    assert sum(estimate.lo <= truth <= estimate.hi for estimate in estimates) >= 0.94 * len(estimates)
