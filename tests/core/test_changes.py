"""The drift rules, by hand and on simulated histories whose truth is known. `docs/alerts.md` has the figures of the
simulations: `pytest tests/core/test_changes.py -k simulated -s` prints them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from core.statistics.alerts import Alerts
from core.statistics.changes import Finding, Point, SeriesKey, cusum_limit, described, findings, untested
from core.statistics.estimates import mean, t95, wilson

LABELS, HELD_OUT = SeriesKey("label_accuracy", "kept", "exact"), SeriesKey("held_out")
ALERTS = Alerts()
ONLY_LABELS = Alerts(figures=("label_accuracy",))
RUNS = 1_000
BASELINES = np.round(np.arange(0.5, 0.901, 0.05), 2)


def point_of(iteration: int, successes: int, n: int) -> Point:
    lo, hi = wilson(successes, n)
    return Point(iteration, successes / n, lo, hi, n, "count")


def points_of(shares: Sequence[float], n: int = 400) -> list[Point]:
    return [point_of(t, round(p * n), n) for t, p in enumerate(shares, 1)]


def point_without_interval(iteration: int, value: float, n: int = 3) -> Point:
    return Point(iteration, value, None, None, n, None)


def label_findings(points: Sequence[Point], settings: Alerts = ONLY_LABELS, key: SeriesKey = LABELS) -> list[Finding]:
    return findings({key: points}, settings)


def test_a_sudden_drop_by_hand() -> None:
    # 280 of 400 against 1,600 of 2,000: pooled 1,880 of 2,400, p = 0.78333, standard error
    # sqrt(0.78333 * 0.21667 * (1/400 + 1/2000)) = 0.022565. Of the rate 0.05 the CUSUM has a tenth; of the other nine
    # tenths each iteration has a tenth: 0.0045, z = 2.6121. So a drop begins 0.058942 below the 0.8.
    [alert] = label_findings(points_of([0.8] * 5 + [0.7]))
    assert (alert.rule, alert.series, alert.point.iteration, alert.severity) == ("sudden", LABELS, 6, "critical")
    assert (alert.reference, alert.threshold) == (pytest.approx(0.8), pytest.approx(0.8 - 0.058942, abs=1e-5))
    for words in (described(LABELS), "70.0% (n = 400)", "80.0% (n = 2,000)", "-10.0 points [-15.0, -5.3]"):
        assert words in alert.text
    [warning] = label_findings(points_of([0.8] * 5 + [0.74]))
    assert warning.severity == "warning"


@pytest.mark.parametrize(
    ("key", "points", "rules"),
    [
        (LABELS, points_of([0.8] * 5 + [0.8 - 0.058]), []),
        (LABELS, points_of([0.8] * 5 + [0.76], n=100_000), []),  # significant but small
        (LABELS, points_of([0.8] * 5 + [0.74], n=100_000), ["sudden"]),
        (LABELS, points_of([0.5] * 5 + [0.9]), []),  # a rise
        (SeriesKey("p_hat", "all"), points_of([0.5] * 5 + [0.8]), ["sudden"]),  # its rule watches both directions
        (SeriesKey("p_hat", "all"), points_of([0.8] * 5 + [0.5]), ["sudden"]),
        (LABELS, points_of([0.9] * 5 + [0.2], n=99), []),  # too few audits
        (LABELS, [*points_of([0.9] * 5), point_of(6, 10, 50)], []),
        (LABELS, points_of([0.9, 0.2], n=100), ["sudden"]),
        (LABELS, [point_without_interval(t, 0.9 if t < 6 else 0.1, 400) for t in range(1, 7)], []),
        # A stratified audit is less sure than a plain one of the same size: its intervals are wider.
        (
            LABELS,
            [replace(p, lo=p.value - 0.1, hi=p.value + 0.1, interval="share") for p in points_of([0.8] * 5 + [0.7])],
            [],
        ),
        # 0.98 -+ 0.04 is cut off at 1, so the width is taken from the other side. Standard errors are 0.04 / 1.984
        # each, 0.02851 of the difference; times z = 3.8906 (a tenth of nine tenths of 1/90 of the rate 0.05) it is
        # 0.1109. With half of [0.94, 1] it would be 0.0981.
        (HELD_OUT, [Point(1, 0.98, 0.94, 1.0, 100, "share"), Point(2, 0.88, 0.84, 0.92, 100, "share")], []),
        (HELD_OUT, [Point(1, 0.98, 0.94, 1.0, 100, "share"), Point(2, 0.867, 0.827, 0.907, 100, "share")], ["sudden"]),
    ],
)
def test_what_is_a_sudden_change(key: SeriesKey, points: list[Point], rules: list[str]) -> None:
    settings = ONLY_LABELS if key == LABELS else ALERTS
    assert [alert.rule for alert in label_findings(points, settings, key)] == rules


@pytest.mark.parametrize(
    ("points", "least"),
    [
        (points_of([0.9] * 6, n=99), 99),
        ([*points_of([0.9] * 5), point_of(6, 10, 50)], 50),  # the iteration itself rests on few
        ([point_of(5, 20, 30), point_of(6, 200, 400)], 30),  # what it is compared with does
        (points_of([0.9] * 6, n=100), None),
        ([point_of(0, 20, 30), *points_of([0.9] * 5, n=15), point_of(6, 200, 400)], 75),  # five are the window
        (points_of([0.9] * 6, n=20)[5:], None),  # there is nothing to compare it with
        ([*points_of([0.9] * 5, n=20), point_without_interval(6, 0.9)], None),
    ],
)
def test_a_series_that_is_not_tested_because_it_rests_on_few_items_is_named(
    points: list[Point], least: int | None
) -> None:
    few = untested({HELD_OUT: points, LABELS: points, SeriesKey("majority_share"): points}, 6, ALERTS)
    assert few == ({} if least is None else {HELD_OUT: least, LABELS: least})
    assert untested({HELD_OUT: points}, 6, ONLY_LABELS) == {}  # no rule is for it
    assert (described(HELD_OUT), described(LABELS)) == ("held out", "label accuracy over kept by exact")


def test_a_slow_decline_raises_an_alert_once_and_again_when_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The series falls by a point and a half an iteration; no step differs significantly from the two before."""
    slow = [0.80, 0.80, 0.80, 0.785, 0.77, 0.755, 0.74, 0.725, 0.71]
    monkeypatch.setattr(Alerts, "window", 2)
    alerts = label_findings(points_of(slow, n=800))
    assert [(alert.rule, alert.point.iteration) for alert in alerts] == [("slow", 7), ("slow", 9)]
    first, second = alerts
    assert (first.reference, first.threshold) == pytest.approx((0.8, 0.75), abs=1e-9)
    assert "up to iteration 3, a gradual change since (CUSUM" in first.text
    assert second.reference == pytest.approx(sum(slow[:7]) / 7)


def test_means_are_tested_by_their_intervals() -> None:
    # The standard errors are 0.1 and, for two iterations together, 0.1 / sqrt(2): sqrt(0.015) = 0.122474. The one rule
    # has the whole rate: 0.05 * 0.9 / 10 for its one direction.
    settings = Alerts(figures=("vote_entropy",))
    key, half = SeriesKey("vote_entropy", "all"), t95(199) * 0.1
    limit = norm.isf(0.05 * 0.9 / 10) * math.sqrt(0.015)
    for fall, expected in ((limit + 1e-3, 1), (limit - 1e-3, 0)):
        points = [Point(t, 1.0, 1 - half, 1 + half, 200, "mean") for t in (1, 2)]
        points.append(Point(3, 1 - fall, 1 - fall - half, 1 - fall + half, 200, "mean"))
        assert len(label_findings(points, settings, key)) == expected


def test_the_rate_of_false_alerts_is_divided_among_oracles() -> None:
    points = points_of([0.8] * 5 + [0.741])
    assert len(label_findings(points)) == 1
    both = {LABELS: points, SeriesKey("label_accuracy", "kept", "judge"): points}
    assert findings(both, ONLY_LABELS) == []


@pytest.mark.parametrize("accuracy", ["held_out", "test_time"])
def test_falling_accuracy_with_rising_reward_and_kl_is_a_collapse(accuracy: str) -> None:
    """SRT 4.1.1: accuracy falls, also on the questions that are trained on, while the pseudo-reward and the KL jump."""
    fall = {SeriesKey(accuracy): points_of([0.6] * 4 + [0.4], n=1000)}
    reward = {SeriesKey("pseudo_reward"): [point_without_interval(t, 0.7 if t < 5 else 0.95) for t in range(1, 6)]}
    kl = {SeriesKey("kl"): [point_without_interval(t, 0.05 if t < 5 else 0.4) for t in range(1, 6)]}
    sudden, collapse = findings({**fall, **reward, **kl}, ALERTS)
    assert (sudden.rule, collapse.rule) == ("sudden", "collapse")
    assert (collapse.severity, collapse.point.iteration) == ("critical", 5)
    for words in ("0.7 to 0.95", "0.05 to 0.4 nats per token"):
        assert words in collapse.text
    low, high = ({SeriesKey("kl"): [point_without_interval(t, kl) for t in range(1, 6)]} for kl in (0.05, 0.4))
    for missing in ({**fall, **reward}, {**fall, **kl}, fall, {**fall, **reward, **low}, {**fall, **reward, **high}):
        assert [alert.rule for alert in findings(missing, ALERTS)] == ["sudden"]


@pytest.mark.parametrize(
    ("rewards", "rules"),
    [
        ([0.0, 0.7, 0.7, 0.7, 0.7, 0.7, 0.74], ["sudden"]),  # 0.04 above the five before; the sixth does not count
        ([0.7, 0.6, 0.7, 0.7, 0.7, 0.7, 0.74], ["sudden", "collapse"]),  # 0.06 above the five before, the fifth counts
    ],
)
def test_the_reward_of_a_collapse_is_compared_with_the_window(rewards: list[float], rules: list[str]) -> None:
    fall = points_of([0.6] * 6 + [0.4], n=1000)
    reward = [point_without_interval(t, value) for t, value in enumerate(rewards, 1)]
    kl = [point_without_interval(t, 0.05 if t < 7 else 0.4) for t in range(1, 8)]
    series = {HELD_OUT: fall, SeriesKey("pseudo_reward"): reward, SeriesKey("kl"): kl}
    assert [alert.rule for alert in findings(series, ALERTS)] == rules


def test_the_accuracy_of_labels_made_in_training_is_tested_like_label_accuracy() -> None:
    key = SeriesKey("training_label_accuracy", "", "given")
    [alert] = label_findings(points_of([0.8] * 5 + [0.7]), key=key)
    assert (alert.rule, alert.severity) == ("sudden", "critical")
    # With labels of both kinds each has half of the rate: 0.00225, z = 2.8414, so a drop begins 0.064116 below 0.8.
    both = findings({key: points_of([0.8] * 5 + [0.74]), LABELS: points_of([0.8] * 6)}, ONLY_LABELS)
    assert both == []
    assert len(label_findings(points_of([0.8] * 5 + [0.74]), key=key)) == 1


@pytest.mark.parametrize(("k", "rate", "iterations"), [(0.5, 0.05, 10), (0.5, 0.01, 10), (1.0, 0.05, 30)])
def test_the_cusum_limit_is_crossed_at_the_rate_asked_for(k: float, rate: float, iterations: int) -> None:
    rng, runs = np.random.default_rng(1), 200_000
    total, highest = np.zeros(runs), np.zeros(runs)
    for _ in range(iterations):
        total = np.maximum(0.0, total + rng.standard_normal(runs) - k)
        highest = np.maximum(highest, total)
    crossed = float((highest > cusum_limit(k, rate, iterations)).mean())
    assert crossed == pytest.approx(rate, abs=4 * math.sqrt(rate / runs))


# Simulated histories. They have every figure that has a rule, drawn with the sizes of a run: audits of 400
# pseudo-labels, shares of 2,000 candidates, means over 300 questions of ten votes, and a benchmark of 300 items with
# eight samples each.


def stable_run(rng: np.random.Generator, p: float, iterations: int) -> dict[SeriesKey, list[Point]]:
    def drawn(share_: float, n: int) -> list[Point]:
        return [point_of(t, x, n) for t, x in enumerate(rng.binomial(n, share_, iterations).tolist(), 1)]

    def means(values: np.ndarray) -> list[Point]:
        return [*_means(values)]

    shares = {"kept_share": 0.3, "duplicate_share": 0.1, "malformed_share": 0.05}
    votes = rng.binomial(10, rng.beta(2, 1, (iterations, 300)))
    unparsed = rng.binomial(10, rng.beta(0.2, 4, (iterations, 300)))
    truncated = rng.binomial(10, rng.beta(0.1, 9, (iterations, 300)))
    held_out = rng.binomial(8, rng.beta(1, 1, 300), (iterations, 300))  # the same items at every iteration
    return {
        LABELS: drawn(p, 400),
        SeriesKey("ill_posed_share", "all", "exact"): drawn(0.03, 400),
        **{SeriesKey(name, "all"): drawn(share_, 2_000) for name, share_ in shares.items()},
        SeriesKey("p_hat", "all"): means(votes / 10),
        SeriesKey("vote_entropy", "all"): means(rng.gamma(2.0, 0.4, (iterations, 300))),
        SeriesKey("unparsed_share", "all"): means(unparsed / 10),
        SeriesKey("truncated_share", "all"): means(truncated / 10),
        SeriesKey("held_out"): means(held_out / 8),
    }


def _means(values: np.ndarray) -> Iterator[Point]:
    halves = t95(values.shape[1] - 1) * values.std(axis=1, ddof=1) / math.sqrt(values.shape[1])
    for t, (value, half) in enumerate(zip(values.mean(axis=1).tolist(), halves.tolist(), strict=True), 1):
        yield Point(t, value, value - half, value + half, values.shape[1], "mean")


def test_a_simulated_mean_has_the_interval_of_a_real_one() -> None:
    values = np.random.default_rng(3).random((1, 50))
    estimate, [point] = mean(values[0].tolist()), [*_means(values)]
    assert (point.value, point.lo, point.hi) == pytest.approx((estimate.value, estimate.lo, estimate.hi), abs=1e-6)


def test_simulated_stable_runs_get_no_alert_in_95_of_100() -> None:
    """The runs have ten iterations; every rule is on; baselines of label accuracy go from 0.5 to 0.9."""
    rng = np.random.default_rng(20)
    alarmed = labels = 0
    for run in range(RUNS):
        alerts = findings(stable_run(rng, BASELINES[run % len(BASELINES)], 10), ALERTS)
        alarmed += bool(alerts)
        labels += any(alert.series == LABELS for alert in alerts)
    print(f"\nstable runs with an alert: {alarmed} of {RUNS}, of label accuracy {labels}")
    assert 0 < labels <= alarmed <= 0.05 * RUNS


def test_simulated_drops_of_ten_points_are_found() -> None:
    """Five iterations are at the baseline, then two are ten points lower; n is 400 and every rule is on."""
    rng = np.random.default_rng(21)
    at_once, by_the_next = [], []
    for p in BASELINES:
        shares = np.array([p] * 5 + [p - 0.1] * 2)
        iterations_with_alert = [_iterations_with_sudden_alert(rng.binomial(400, shares)) for _ in range(RUNS)]
        at_once.append(np.mean([6 in iterations for iterations in iterations_with_alert]))
        by_the_next.append(np.mean([bool(iterations & {6, 7}) for iterations in iterations_with_alert]))
        print(f"\nfrom {p:.2f}: at once {at_once[-1]:.1%}, by the next iteration {by_the_next[-1]:.1%}", end="")
    print(f"\nover all baselines: at once {np.mean(at_once):.1%}")
    assert np.mean(at_once) >= 0.9
    assert min(at_once) >= 0.8
    assert min(by_the_next) >= 0.9


def _iterations_with_sudden_alert(successes: np.ndarray) -> set[int]:
    points = [point_of(t, x, 400) for t, x in enumerate(successes.tolist(), 1)]
    return {alert.point.iteration for alert in findings({LABELS: points}, ALERTS) if alert.rule == "sudden"}


def test_simulated_coverage_of_a_share_s_interval_is_95_percent_on_average() -> None:
    """The coverage goes up and down with p and n, so its average over a grid is compared with 95%: 49 values of p from
    0.02 to 0.98, and five of n."""
    rng = np.random.default_rng(22)
    covered = []
    for n in (50, 100, 200, 400, 1250):
        limits = np.array([wilson(x, n) for x in range(n + 1)])
        for p in np.linspace(0.02, 0.98, 49):
            lo, hi = limits[rng.binomial(n, p, RUNS)].T
            covered.append(float(((lo <= p) & (p <= hi)).mean()))
    print(f"\ncoverage: {np.mean(covered):.2%} on average, from {min(covered):.1%} to {max(covered):.1%}")
    assert np.mean(covered) == pytest.approx(0.95, abs=0.005)
    assert min(covered) > 0.88
