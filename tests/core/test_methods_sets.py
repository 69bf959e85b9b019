"""Marginal set advantages: compared with values by hand, and with an enumeration of all sets."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from core.methods.poly_epo import pass_at_n_advantages, polychromic_advantages
from core.types import DEGENERATE

Floats = NDArray[np.float64]


@pytest.mark.parametrize(
    ("clusters", "advantages"),
    [
        # Sets of two: {1,2} 1/2 * 1/2, {1,3} 1/2 * 2/2, {2,3} 0. Their mean is 1/4. Rollout 1: ((1/4 - 1/4) + (1/2 -
        # 1/4)) / 2; rollout 2: (0 - 1/4) / 2; rollout 3: (1/4 - 1/4) / 2. So a wrong rollout with a new strategy is not
        # discouraged, one with the usual strategy is (section 5.2).
        ((1, 1, 2), [1 / 8, -1 / 8, 0]),
        # {1,3} has one strategy, 1/2 * 1/2. The mean is 1/6. 1: 1/4 - 1/6; 2 and 3: (1/12 - 1/6) / 2.
        ((1, 1, DEGENERATE), [1 / 12, -1 / 24, -1 / 24]),
    ],
)
def test_the_advantages_of_three_rollouts_by_hand(clusters: tuple[int, ...], advantages: list[float]) -> None:
    assert polychromic_advantages(np.array([1.0, 0.0, 0.0]), clusters, 2) == pytest.approx(advantages)


def test_pass_at_n_by_hand() -> None:
    # One of four rollouts is right; three of six pairs have it and win. The right one: 1 - 1/2. A wrong one wins only
    # in its pair with the right one: 1/3 - 1/2.
    advantages = pass_at_n_advantages(np.array([1.0, 0, 0, 0]), 2)
    assert advantages == pytest.approx([1 / 2, -1 / 6, -1 / 6, -1 / 6])


def enumerated(score: Callable[[tuple[int, ...]], float], count: int, size: int) -> Floats:
    """Equations 7 and 8 as they are in the paper, over all sets."""
    sets = list(combinations(range(count), size))
    scores = np.array([score(chosen) for chosen in sets])
    baseline = scores.mean()
    return np.array(
        [np.mean([s - baseline for s, g in zip(scores, sets, strict=True) if i in g]) for i in range(count)]
    )


@st.composite
def groups(draw: st.DrawFn) -> tuple[Floats, list[int], int]:
    count = draw(st.integers(1, 8))
    rewards = draw(st.lists(st.sampled_from([0.0, 1.0, 0.5, -0.25]), min_size=count, max_size=count))
    clusters = draw(st.lists(st.sampled_from([1, 2, 3, 4, DEGENERATE]), min_size=count, max_size=count))
    return np.array(rewards), clusters, draw(st.integers(1, count))


@given(groups())
def test_the_closed_forms_equal_the_enumeration_of_all_sets(group: tuple[Floats, list[int], int]) -> None:
    rewards, clusters, size = group

    def polychromic(chosen: tuple[int, ...]) -> float:
        distinct = {clusters[i] for i in chosen} - {DEGENERATE}
        return float(np.mean([rewards[i] for i in chosen])) * len(distinct) / size

    def best(chosen: tuple[int, ...]) -> float:
        return float(max(rewards[i] for i in chosen))

    expected = enumerated(polychromic, len(rewards), size)
    assert polychromic_advantages(rewards, clusters, size) == pytest.approx(expected, abs=1e-12)
    assert pass_at_n_advantages(rewards, size) == pytest.approx(enumerated(best, len(rewards), size), abs=1e-12)


@given(groups(), st.randoms(use_true_random=False))
def test_advantages_sum_to_zero_and_follow_a_permutation(group: tuple[Floats, list[int], int], random: Random) -> None:
    rewards, clusters, size = group
    order = list(range(len(rewards)))
    random.shuffle(order)
    advantages = polychromic_advantages(rewards, clusters, size)
    assert advantages.sum() == pytest.approx(0, abs=1e-12)
    shuffled = polychromic_advantages(rewards[order], [clusters[i] for i in order], size)
    assert shuffled == pytest.approx(advantages[order], abs=1e-12)
    assert pass_at_n_advantages(rewards[order], size) == pytest.approx(
        pass_at_n_advantages(rewards, size)[order], abs=1e-12
    )


@pytest.mark.parametrize(
    ("size", "clusters", "named"), [(0, (1, 1), "set_size"), (3, (1, 1), "set_size"), (1, (1,), "clusters")]
)
def test_sizes_and_clusters_that_do_not_fit_the_rewards_are_refused(
    size: int, clusters: tuple[int, ...], named: str
) -> None:
    with pytest.raises(ValueError, match=f"^{named}: "):
        polychromic_advantages(np.array([1.0, 0.0]), clusters, size)


@pytest.mark.parametrize("reward", [0.0, 1.0, 1 / 3])
@pytest.mark.parametrize("count", [5, 8, 10])
def test_equal_rollouts_get_advantages_of_exactly_zero(reward: float, count: int) -> None:
    rewards = np.full(count, reward)
    assert not pass_at_n_advantages(rewards, 4).any()
    assert not polychromic_advantages(rewards, (1,) * count, 4).any()


def test_many_rollouts_do_not_overflow() -> None:
    generator = np.random.default_rng(0)
    rewards, clusters = generator.integers(0, 2, 256).astype(float), generator.integers(1, 40, 256)
    advantages = polychromic_advantages(rewards, clusters, 64)
    assert np.isfinite(advantages).all()
    assert advantages.sum() == pytest.approx(0, abs=1e-12)
