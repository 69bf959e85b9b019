"""Tests of whether a run's figures have changed: each iteration against those before it, with few false alarms.

Three rules look at a series:

- `sudden` compares the iteration with the window of iterations before it, pooled. Shares of counts are compared by the
  score test of two proportions, which is the z with the pooled variance (the interval of the difference is that of
  Newcombe 1998). Everything else, which is means and shares of stratified samples, is compared by the z of the
  intervals.
- `slow` is a one-sided CUSUM (Page 1954) of the same z, but against all iterations before. Such recursive z are
  independent standard normal while nothing changes; against a fixed reference they would not be (Hawkins 1987, the
  self-starting CUSUM). So the limit is exact, by the Markov chain of Brook and Evans (1972).
- `collapse` is SRT's signature (arXiv 2505.21444, 4.1.1): held-out accuracy falls, by its own `sudden` test, while the
  pseudo-reward and the KL have risen.

`Alerts.rate` limits the chance that a run in which nothing changes gets any alert at all. It is divided by Bonferroni's
method among rules, series, tests and iterations, so the limit holds however these depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Literal, NamedTuple, cast

import numpy as np

from core.figures import ACCURACY, Rule, figures_of_rule, is_share
from core.statistics.alerts import Alerts
from core.statistics.estimates import Estimate, Interval, difference, t95, wilson

_STATES = 200  # of the CUSUM's Markov chain


class SeriesKey(NamedTuple):
    """Identifies a series: its name, the questions that it is over, and its oracle. The last two may be empty."""

    name: str
    over: str = ""
    oracle: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """The figure of a series in one iteration, with its 95% interval if it has one, and what kind of interval it is."""

    iteration: int
    value: float
    lo: float | None
    hi: float | None
    n: int
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Finding:
    """A change that was found. `point` is that of the iteration in which it shows."""

    rule: Literal["sudden", "slow", "collapse"]
    series: SeriesKey
    point: Point
    severity: Literal["warning", "critical"]
    reference: float  # what the value is compared with
    threshold: float  # the one that the value crossed
    text: str


@dataclass(frozen=True, slots=True)
class _Figure:
    """A mean and its variance. `right` is the count if the mean is a share of counts, `right / n`, else None."""

    value: float
    variance: float
    n: int
    right: int | None


def findings(series: Mapping[SeriesKey, Sequence[Point]], settings: Alerts) -> list[Finding]:
    """The changes in a run's series. The points of each series must be in order of iteration.

    The findings of an iteration depend only on that iteration, on those before it, and on which series exist.
    """
    changes: list[Finding] = []
    for name, rule in settings.rules.items():
        matching = [key for key in series if key.name in figures_of_rule(name) and key.over in (rule.over, "")]
        for key in matching:
            rate = _rate_of(name, settings) / len(matching)
            changes += _changes(key, series[key], rule, rate, settings)
    falls = [finding for finding in changes if finding.rule == "sudden" and finding.series.name in ACCURACY]
    return [*changes, *(collapse for fall in falls for collapse in _collapse(fall, series, settings))]


def untested(series: Mapping[SeriesKey, Sequence[Point]], iteration: int, settings: Alerts) -> dict[SeriesKey, int]:
    """The series that a rule is for and that no rule tests in an iteration, because they rest on fewer items than
    `min_n` there or before: series -> that number of items. A series without earlier points is not among them.
    """
    few = dict[SeriesKey, int]()
    for name, rule in settings.rules.items():
        for key, points in series.items():
            figures = {point.iteration: figure for point in points if (figure := _figure(point)) is not None}
            before = _pooled([figure for t, figure in figures.items() if t < iteration][-settings.window :])
            is_tested = key.name in figures_of_rule(name) and key.over in (rule.over, "")
            if is_tested and iteration in figures and before is not None:
                least = min(figures[iteration].n, before.n)
                few |= {key: least} if least < settings.min_n else {}
    return few


def described(key: SeriesKey) -> str:
    """A series in words: "label accuracy over kept by exact"."""
    over = f" over {key.over}" if key.over else ""
    oracle = f" by {key.oracle}" if key.oracle else ""
    return f"{key.name.replace('_', ' ')}{over}{oracle}"


def _rate_of(name: str, settings: Alerts) -> float:
    """The part of the false-alarm rate that a rule gets."""
    weights = {tested: rule.weight for tested, rule in settings.rules.items()}
    return settings.rate * weights[name] / sum(weights.values())


def _changes(key: SeriesKey, points: Sequence[Point], rule: Rule, rate: float, settings: Alerts) -> Iterator[Finding]:
    """The sudden and slow changes of one series. If an iteration shows both, only the sudden one is reported."""
    history = [(point, figure) for point in points if (figure := _figure(point)) is not None]
    signs = [sign for sign, word in ((-1, "down"), (1, "up")) if rule.direction in (word, "either")]
    for sign in signs:
        sudden = [*_sudden(history, sign, rule, rate * (1 - settings.slow_share) / len(signs), settings)]
        sudden_iterations = {iteration for iteration, *_ in sudden}
        slow = [*_slow(history, sign, rule, rate * settings.slow_share / len(signs), settings)]
        changes = [("sudden", change) for change in sudden]
        changes += [("slow", change) for change in slow if change[0] not in sudden_iterations]
        for name, (iteration, before, threshold, explanation) in changes:
            point, now = next(pair for pair in history if pair[0].iteration == iteration)
            yield Finding(
                rule=cast(Literal["sudden", "slow"], name),
                series=key,
                point=point,
                severity="critical" if abs(now.value - before.value) >= rule.critical else "warning",
                reference=before.value,
                threshold=threshold,
                text=_text(key, now, before, explanation),
            )


_History = Sequence[tuple[Point, _Figure]]
_Change = tuple[int, _Figure, float, str]  # iteration, what it is compared with, threshold, explanation


def _sudden(history: _History, sign: int, rule: Rule, rate: float, settings: Alerts) -> Iterator[_Change]:
    limit = NormalDist().inv_cdf(1 - rate / settings.iterations)
    for i, (point, now) in enumerate(history):
        window = history[max(0, i - settings.window) : i]
        before = _pooled([figure for _, figure in window])
        if before is None or min(now.n, before.n) < settings.min_n:
            continue
        error = _standard_error(now, before)
        least_change = max(rule.warning, limit * error)
        if (now.value - before.value) * sign >= least_change > 0:
            first, last = window[0][0].iteration, window[-1][0].iteration
            iterations = f"iteration {first}" if first == last else f"iterations {first} to {last}"
            yield point.iteration, before, before.value + sign * least_change, f"in {iterations}"


def _slow(history: _History, sign: int, rule: Rule, rate: float, settings: Alerts) -> Iterator[_Change]:
    limit = cusum_limit(settings.slow_k, rate, settings.iterations)
    cusum, start = 0.0, 0  # `start` is the index of the iteration at which the CUSUM last left zero
    for i, (point, now) in enumerate(history):
        before = _pooled([figure for _, figure in history[:i]])
        if before is None or min(now.n, before.n) < settings.min_n:
            continue
        error = _standard_error(now, before)
        start = i if cusum == 0.0 else start
        cusum = max(0.0, cusum + (sign * (now.value - before.value) / error if error else 0.0) - settings.slow_k)
        if cusum <= limit:
            continue
        reference, crossed = _pooled([figure for _, figure in history[:start]]), cusum
        cusum = 0.0  # start again, so that the next iteration does not report the same change
        if reference is not None and (now.value - reference.value) * sign >= rule.warning:
            until = history[start - 1][0].iteration
            explanation = f"up to iteration {until}, a gradual change since (CUSUM {crossed:.1f}, limit {limit:.1f})"
            yield point.iteration, reference, reference.value + sign * rule.warning, explanation


def _collapse(fall: Finding, series: Mapping[SeriesKey, Sequence[Point]], settings: Alerts) -> Iterator[Finding]:
    """The collapse, if any, of an iteration in which held-out accuracy has fallen."""
    reward = _now_and_before(series.get(SeriesKey("pseudo_reward"), ()), fall.point.iteration, settings)
    kl = _now_and_before(series.get(SeriesKey("kl"), ()), fall.point.iteration, settings)
    if reward is None or kl is None:
        return
    if reward[0] - reward[1] >= settings.collapse_jump and kl[0] >= settings.collapse_kl and kl[0] > kl[1]:
        text = (
            f"{fall.text}; meanwhile the pseudo-reward rose from {reward[1]:.3g} to {reward[0]:.3g} and the KL from "
            f"{kl[1]:.3g} to {kl[0]:.3g} nats per token: the Solver learns to agree with itself, not to be right"
        )
        yield Finding("collapse", fall.series, fall.point, "critical", fall.reference, fall.threshold, text)


def _now_and_before(points: Sequence[Point], iteration: int, settings: Alerts) -> tuple[float, float] | None:
    """The value of a series without intervals at an iteration, and its mean over the window before."""
    now = [point.value for point in points if point.iteration == iteration]
    before = [point.value for point in points if point.iteration < iteration][-settings.window :]
    return (now[0], sum(before) / len(before)) if now and before else None


@cache
def cusum_limit(k: float, rate: float, iterations: int) -> float:
    """The limit h that the CUSUM `S_t = max(0, S_{t-1} + z_t - k)` exceeds with probability `rate` within `iterations`
    iterations, for independent standard normal z (Brook and Evans 1972)."""
    low, high = 0.0, 50.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if _crossing_probability(middle, k, iterations) > rate else (low, middle)
    return high


def _crossing_probability(h: float, k: float, iterations: int) -> float:
    """The probability that the CUSUM exceeds h within `iterations`, by a Markov chain over cells of its range."""
    from scipy.special import ndtr  # slow to import, and few callers need it

    width = h / (_STATES - 0.5)  # the first cell goes from 0 to half a width
    states = np.arange(_STATES) * width
    # (from, to): the probability of ending in state `to` or below
    cumulative = ndtr(states[None, :] - states[:, None] + width / 2 + k)
    transitions = np.diff(cumulative, axis=1, prepend=0.0)
    distribution = np.zeros(_STATES)
    distribution[0] = 1.0
    for _ in range(iterations):
        distribution = distribution @ transitions
    return float(1.0 - distribution.sum())


def _figure(point: Point) -> _Figure | None:
    """The figure of a point; None if the point has no interval or no items."""
    if point.lo is None or point.hi is None or point.n == 0:
        return None
    # The interval of a share is cut off at 0 and 1. Then only its other end shows the variance.
    is_cut = 0 < point.value < 1 and (point.lo <= 0 or point.hi >= 1)
    half = max(point.value - point.lo, point.hi - point.value) if is_cut else (point.hi - point.lo) / 2
    variance = (half / t95(point.n - 1)) ** 2
    right = round(point.value * point.n) if point.interval == "count" else None
    return _Figure(point.value, variance, point.n, right)


def _pooled(figures: Sequence[_Figure]) -> _Figure | None:
    """Several iterations as one figure, each weighted by its n; None if there are none."""
    if not figures:
        return None
    n = sum(figure.n for figure in figures)
    value = sum(figure.value * figure.n for figure in figures) / n
    variance = sum(figure.variance * (figure.n / n) ** 2 for figure in figures)
    counts = [figure.right for figure in figures if figure.right is not None]
    return _Figure(value, variance, n, sum(counts) if len(counts) == len(figures) else None)


def _standard_error(now: _Figure, before: _Figure) -> float:
    """The standard error of the difference while nothing changes. For counts it uses the share of both together."""
    if now.right is None or before.right is None:
        return math.sqrt(now.variance + before.variance)
    p = (now.right + before.right) / (now.n + before.n)
    return math.sqrt(p * (1 - p) * (1 / now.n + 1 / before.n))


def _text(key: SeriesKey, now: _Figure, before: _Figure, explanation: str) -> str:
    change = difference(_estimate(now), _estimate(before))
    if not is_share(key.name):
        values = (f"{now.value:.4g}", f"{before.value:.4g}")
        difference_text = f"{change.value:+.3g} [{change.lo:+.3g}, {change.hi:+.3g}]"
    else:
        values = (f"{now.value:.1%}", f"{before.value:.1%}")
        difference_text = f"{100 * change.value:+.1f} points [{100 * change.lo:+.1f}, {100 * change.hi:+.1f}]"
    return (
        f"{described(key)} is {values[0]} (n = {now.n:,}), against {values[1]} (n = {before.n:,}) {explanation}: "
        f"{difference_text}"
    )


def _estimate(figure: _Figure) -> Estimate:
    half = t95(figure.n - 1) * math.sqrt(figure.variance)
    interval = None if figure.right is None else wilson(figure.right, figure.n)
    lo, hi = interval or (figure.value - half, figure.value + half)
    return Estimate(figure.value, lo, hi, figure.n)
