from __future__ import annotations

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.statistics.audits import (
    AuditError,
    Stratum,
    audits_needed,
    detectable_drop,
    draw,
    in_order,
    n_text,
    stratified_share,
    stratum_of,
)
from core.statistics.estimates import share
from core.types import Verdict

Rows = list[tuple[str, float, Verdict]]
TENTHS = [tenth / 10 for tenth in range(11)]


def rows(counts: dict[tuple[float, Verdict], int]) -> Rows:
    return [
        (f"run/1/{p_hat}/{verdict}/{i}", p_hat, verdict)
        for (p_hat, verdict), count in counts.items()
        for i in range(count)
    ]


def test_a_stratum_is_a_fifth_of_p_hat_kept_or_not_kept() -> None:
    in_their_order = {
        (0.0, "too_hard"): "not kept 0.0-0.2",
        (0.3, "kept"): "kept 0.2-0.4",
        (0.2, "too_hard"): "not kept 0.2-0.4",
        (0.6, "kept"): "kept 0.6-0.8",
        (0.9, "no_majority"): "not kept 0.8-1.0",
        (1.0, "too_easy"): "not kept 0.8-1.0",
    }
    assert [stratum_of(p_hat, verdict) for p_hat, verdict in in_their_order] == [*in_their_order.values()]
    assert in_order(reversed(in_their_order.values())) == [*in_their_order.values()]
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"^p_hat: "):
            stratum_of(wrong, "kept")


def test_the_allocation_of_audits_to_strata_by_hand() -> None:
    labels = rows({(0.9, "too_easy"): 60, (0.5, "kept"): 30, (0.1, "too_hard"): 10, (0.7, "kept"): 1})
    strata = [position.stratum for position in draw(labels, 12, seed=1)]
    easy, kept, hard, single = "not kept 0.8-1.0", "kept 0.4-0.6", "not kept 0.0-0.2", "kept 0.6-0.8"
    # First one label of each stratum, the largest stratum first; then a second one where there is one. Each further one
    # is of the stratum with the largest size / (2 drawn + 1): 60/5, 30/5, 10/5; 60/7, 60/9, 60/11 (30/5 = 6 comes
    # before 5.45), …
    assert strata[:4] == [easy, kept, hard, single]
    assert strata[4:7] == [easy, kept, hard]
    assert strata[7:12] == [easy, easy, easy, kept, easy]


@given(
    st.dictionaries(st.tuples(st.sampled_from(TENTHS), st.sampled_from(["kept", "too_easy"])), st.integers(1, 40)),
    st.integers(1, 300),
    st.integers(0, 2**63 - 1),
    st.randoms(use_true_random=False),
)
def test_a_larger_sample_begins_with_the_smaller_one(counts: dict, size: int, seed: int, shuffler: object) -> None:
    labels = rows(counts)
    drawn = draw(labels, size, seed)
    assert [position.position for position in drawn] == [*range(min(size, len(labels)))]
    assert len({position.question_id for position in drawn}) == len(drawn)
    shuffler.shuffle(labels)
    assert draw(labels, size + 17, seed)[:size] == drawn  # the order of the rows does not matter


@given(
    st.dictionaries(st.tuples(st.sampled_from(TENTHS), st.just("kept")), st.integers(1, 40), min_size=1),
    st.integers(1, 300),
)
def test_every_stratum_has_two_audits_and_the_rest_are_in_proportion(counts: dict, size: int) -> None:
    labels = rows(counts)
    sizes = Counter(stratum_of(p_hat, verdict) for _, p_hat, verdict in labels)
    drawn = Counter(position.stratum for position in draw(labels, size, seed=3))
    least = {name: min(2, count) for name, count in sizes.items()}
    if size >= sum(least.values()):
        assert all(drawn[name] >= least[name] for name in sizes)
        # No stratum has more than its minimum while another has a better claim to the audit.
        for more, less in ((a, b) for a in sizes for b in sizes if a != b):
            if drawn[more] > 2 and drawn[less] < sizes[less]:
                assert sizes[more] / (2 * drawn[more] - 1) >= sizes[less] / (2 * drawn[less] + 1)
    else:
        assert set(drawn.values()) <= {1, 2}


def test_a_draw_is_random() -> None:
    labels = rows({(0.5, "kept"): 100})
    hits = Counter(position.question_id for seed in range(2_000) for position in draw(labels, 10, seed))
    assert len(hits) == 100
    chi_squared = sum((count - 200) ** 2 / 200 for count in hits.values()) / 0.9  # 10 of 100 without replacement
    assert 58 < chi_squared < 153  # 99 degrees of freedom, 0.0005 and 0.9995


def test_no_labels_give_an_empty_draw_and_a_size_of_zero_is_refused() -> None:
    assert draw([], 5, seed=1) == []
    with pytest.raises(AuditError, match=r"^size: "):
        draw(rows({(0.5, "kept"): 3}), 0, seed=1)


def test_a_weighted_share_by_hand() -> None:
    # Sizes 100 and 300: 0.25 * 8/10 + 0.75 * 3/10 = 0.425. All: (0.425 * 20 + 1) / 22 = 0.431818; the strata's p are
    # (8 + 0.431818) / 11 = 0.766529 and (3 + 0.431818) / 11 = 0.311983. Variance 0.0625 * 0.9 * 0.178962 / 10
    # + 0.5625 * (29/30) * 0.214650 / 10 = 0.00100666 + 0.01167157 = 0.01267823. The middle, 0.25 * 0.766529
    # + 0.75 * 0.311983 = 0.425620, spreads 0.244468; over the set 0.000611. n = 0.244468 / 0.0132894 = 18.3957.
    estimate = stratified_share([Stratum(100, 10, 8), Stratum(300, 10, 3)])
    n, z2 = 18.3957, 2.093024**2  # Student's, with 19 degrees of freedom
    centre = (0.425 + z2 / (2 * n)) / (1 + z2 / n)
    half = z2**0.5 * math.sqrt(0.425 * 0.575 / n + z2 / (4 * n * n)) / (1 + z2 / n)
    assert (estimate.value, estimate.n) == (pytest.approx(0.425), 20)
    assert (estimate.lo, estimate.hi) == pytest.approx((centre - half, centre + half), abs=1e-4)


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), min_size=1, max_size=10), st.integers(0, 5000))
def test_the_share_where_everything_is_audited_or_in_one_stratum_is_a_plain_share(
    counts: list[tuple[int, int]], rest: int
) -> None:
    whole = [Stratum(n, n, min(right, n)) for n, right in counts]
    for strata in (whole, [Stratum(n + rest, n, min(right, n)) for n, right in counts[:1]]):
        estimate, plain = stratified_share(strata), share(sum(s.right for s in strata), sum(s.n for s in strata))
        assert dataclasses.astuple(estimate) == pytest.approx(dataclasses.astuple(plain))


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500), st.integers(0, 500)).map(sorted), max_size=10))
def test_an_interval_has_its_share_in_it(counts: list[list[int]]) -> None:
    estimate = stratified_share([Stratum(size, n, right) for right, n, size in counts])
    assert (estimate is None) == (not any(n for _, n, _ in counts))
    if estimate:
        assert 0 <= estimate.lo <= estimate.value <= estimate.hi <= 1
        assert estimate.lo < estimate.hi


def test_strata_without_audits_are_merged_with_their_nearest_neighbour() -> None:
    with_gaps = [Stratum(10, 0, 0), Stratum(100, 10, 8), Stratum(20, 0, 0), Stratum(5, 0, 0), Stratum(300, 10, 3)]
    # The strata of 10 and of 20 join the second, which is the nearest; the one of 5 joins the last.
    assert stratified_share(with_gaps) == stratified_share([Stratum(130, 10, 8), Stratum(305, 10, 3)])
    between = [Stratum(100, 10, 8), Stratum(20, 0, 0), Stratum(300, 10, 3)]
    assert stratified_share(between) == stratified_share([Stratum(120, 10, 8), Stratum(300, 10, 3)])
    assert stratified_share([Stratum(10, 0, 0)]) is None
    assert stratified_share([]) is None


@pytest.mark.parametrize("counts", [(5, 6, 1), (5, 3, 4), (5, 3, -1)])
def test_impossible_counts_are_refused(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"^stratum: "):
        Stratum(*counts)


@pytest.mark.parametrize("size", [50, 100, 200, 400])
@pytest.mark.parametrize(
    ("shares", "accuracies"),
    [
        ([0.1, 0.15, 0.15, 0.2, 0.15, 0.1, 0.15], [0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 0.98]),  # steep
        ([0.1, 0.15, 0.15, 0.2, 0.15, 0.1, 0.15], [0.9] * 7),
        ([0.005, 0.01, 0.03, 0.05, 0.1, 0.2, 0.605], [0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9]),  # strata of two audits
        ([0.005, 0.01, 0.03, 0.05, 0.1, 0.2, 0.605], [0.8, 0.83, 0.86, 0.9, 0.93, 0.95, 0.97]),
        ([0.5, 0.5], [0.3, 0.9]),
    ],
)
def test_the_interval_covers_the_true_accuracy(size: int, shares: list[float], accuracies: list[float]) -> None:
    """Sets of 600 and of 8,000 labels are made, drawn from and audited; in 95 -+ 2% of the cases the interval has the
    accuracy that the sets were made with. With 50 audits, which give few different shares, 1% more is allowed."""
    generator, truth = np.random.default_rng(size), float(np.dot(shares, accuracies))
    covered = 0
    for set_number in range(60):
        sizes = generator.multinomial(8_000 if set_number % 2 else 600, shares)
        drawn = _allocated(sizes, size)
        for right in generator.binomial(drawn, accuracies, size=(25, len(shares))):
            estimate = stratified_share(
                [Stratum(*map(int, counts)) for counts in zip(sizes, drawn, right, strict=True)]
            )
            covered += estimate.lo <= truth <= estimate.hi
    allowed = 0.02 + 0.0113 + (0.01 if size == 50 else 0)  # 0.0113: two standard errors of a share of 0.95 of 1,500
    assert abs(covered / 1_500 - 0.95) <= allowed


def _allocated(sizes: np.ndarray, size: int) -> np.ndarray:
    """The numbers of audits that `draw` would give to the strata."""
    drawn = np.minimum(sizes, 2)
    while drawn.sum() < size:
        drawn[np.argmax(np.where(drawn < sizes, sizes / (2 * drawn + 1), -1))] += 1
    return drawn


def test_the_number_of_audits_that_a_drop_needs_by_hand() -> None:
    # 0.75 to 0.70: pooled 0.725. (1.959964 sqrt(2 * 0.725 * 0.275) + 0.841621 sqrt(0.1875 + 0.21))² / 0.0025 = 1250.6
    assert audits_needed(0.05, 0.75) == 1251
    assert audits_needed(0.05, 0.8) == 1094
    assert audits_needed(0.10, 0.8) == 294
    assert audits_needed(0.05, 0.75, reference_n=1251) == 1251
    assert audits_needed(0.05, 0.75, reference_n=5000) < 800 < 1251 < audits_needed(0.05, 0.75, power=0.9)


def test_the_planned_number_of_audits_detects_the_drop_with_the_planned_power() -> None:
    generator, n = np.random.default_rng(5), audits_needed(0.05, 0.75)
    before, after = generator.binomial(n, 0.75, 40_000) / n, generator.binomial(n, 0.70, 40_000) / n
    pooled = (before + after) / 2
    detected = np.abs(before - after) > 1.959964 * np.sqrt(pooled * (1 - pooled) * 2 / n)
    assert float(detected.mean()) == pytest.approx(0.8, abs=0.01)


@given(st.floats(0.01, 0.3), st.floats(0.35, 0.99), st.sampled_from([None, 100_000]))
def test_the_detectable_drop_is_the_inverse_of_the_number_of_audits(
    drop: float, accuracy: float, reference: int | None
) -> None:
    n = audits_needed(drop, accuracy, reference_n=reference)
    assert detectable_drop(n, accuracy, reference_n=reference) <= drop + 1e-6
    assert detectable_drop(n - 1, accuracy, reference_n=reference) > drop - 1e-6
    assert detectable_drop(2, accuracy) is None
    with pytest.raises(AuditError, match=r"^n: "):
        detectable_drop(0, accuracy)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"drop": 0.0}, "drop"),
        ({"drop": 0.9}, "drop"),  # more than the accuracy
        ({"accuracy": 1.2}, "accuracy"),
        ({"power": 1.0}, "power"),
        ({"confidence": math.nan}, "confidence"),
        ({"reference_n": 0}, "reference_n"),
        ({"reference_n": 50}, "reference_n"),  # against so few, no number of audits is enough
    ],
)
def test_a_plan_that_cannot_be_made_is_refused(arguments: dict, named: str) -> None:
    with pytest.raises(AuditError, match=f"^{named}: "):
        audits_needed(**{"drop": 0.05, "accuracy": 0.8, **arguments})


def test_a_share_that_is_no_count_out_of_n_is_called_weighted() -> None:
    weighted = stratified_share([Stratum(990, 4, 4), Stratum(10, 4, 0)])
    plain = stratified_share([Stratum(10, 10, 7)])
    assert (f"{weighted.value:.1%}", n_text(weighted)) == ("99.0%", "n = 8, weighted")
    assert (f"{plain.value:.1%}", n_text(plain)) == ("70.0%", "n = 10")
