"""How a run's figures have changed: tests of each iteration against those before it, with few false alarms in a run.

Three rules look at a series:

- `sudden`: the iteration against the window before it, pooled. Shares of counts by the score test of two proportions
  (the z with the pooled variance; Newcombe 1998 gives the interval of the difference); everything else, means and
  shares of stratified samples, by the z of their intervals.
- `slow`: a one-sided CUSUM (Page 1954) of the same z, but against all iterations before. Such recursive z are
  independent standard normal while nothing changes, which no fixed reference gives (Hawkins 1987, the self-starting
  CUSUM); the limit is exact for them, by Brook and Evans's Markov chain (1972).
- `collapse`: SRT's signature (arXiv 2505.21444, 4.1.1): held-out accuracy falls, by its own `sudden` test, while the
  pseudo-reward and the KL have risen.

What is controlled is the chance that a run in which nothing changes gets any alert at all: `Alerts.rate`, divided by
Bonferroni among rules, series, tests and iterations, so that it holds however these depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Literal, NamedTuple, cast

import numpy as np

from core.settings.alerts import Alerts, Rule, Tested
from core.statistics.estimates import Z95, Estimate, difference, wilson

# The series of the Solver's pass@1 on the benchmark: HELD_OUT where the run trains on other questions, TEST_TIME where
# it trains on those very questions. A run has one of the two, and the rule HELD_OUT tests either.
HELD_OUT, TEST_TIME = "held_out", "test_time"
ACCURACY = (HELD_OUT, TEST_TIME)
# The accuracy of the labels that the Solver learns from: of those that were made before its training, by slice, and of
# those that its method makes while it trains. The rule LABELS tests both.
LABELS, TRAINING_LABELS = "label_accuracy", "training_label_accuracy"
# Of the training's prompts, the share that got a label; of the answers taken for wrong (SCRL), the share that is wrong.
LABELLED_SHARE, NEGATIVE_LABEL_ACCURACY = "training_labelled_share", "negative_label_accuracy"

_TESTED: Mapping[str, tuple[str, ...]] = {HELD_OUT: ACCURACY, LABELS: (LABELS, TRAINING_LABELS)}

_MEANS = frozenset({"vote_entropy", "response_length"})  # all else that is tested is a share
_STATES = 200  # of the Markov chain


class SeriesKey(NamedTuple):
    """Which series: its name, over what, and by which oracle; empty where it has none."""

    name: str
    over: str = ""
    oracle: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """A series' figure of one iteration, with its 95% interval where it has one."""

    iteration: int
    value: float
    lo: float | None
    hi: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A change that was found, in the iteration where it was."""

    rule: Literal["sudden", "slow", "collapse"]
    series: SeriesKey
    point: Point
    severity: Literal["warning", "critical"]
    reference: float  # what the value is compared with
    threshold: float  # that the value crossed
    text: str


@dataclass(frozen=True, slots=True)
class _Figure:
    """A mean and its variance; `right` of n where it is a share of counts."""

    value: float
    variance: float
    n: int
    right: int | None


def findings(series: Mapping[SeriesKey, Sequence[Point]], settings: Alerts) -> list[Finding]:
    """The changes in a run's series, each with its points in order of iteration. What is found in an iteration rests
    on it and those before it only, and on which series there are."""
    changes: list[Finding] = []
    for name, rule in settings.rules.items():
        names = _TESTED.get(name, (name,)) if rule.enabled else ()
        matching = [key for key in series if key.name in names and key.over in (rule.over, "")]
        for key in matching:
            rate = _rate_of(name, settings) / len(matching)
            changes += _changes(key, series[key], rule, rate, settings)
    falls = [finding for finding in changes if finding.rule == "sudden" and finding.series.name in ACCURACY]
    return [*changes, *(collapse for fall in falls for collapse in _collapse(fall, series, settings))]


def _rate_of(name: Tested, settings: Alerts) -> float:
    """The share of the false-alarm rate that is a rule's."""
    weights = {tested: rule.weight for tested, rule in settings.rules.items() if rule.enabled}
    return settings.rate * weights[name] / sum(weights.values())


def _changes(key: SeriesKey, points: Sequence[Point], rule: Rule, rate: float, settings: Alerts) -> Iterator[Finding]:
    """Sudden and slow changes of one series; where an iteration shows both, the sudden one is told of."""
    seen = [(point, figure) for point in points if (figure := _figure(point)) is not None]
    sides = [sign for sign, word in ((-1, "down"), (1, "up")) if rule.direction in (word, "either")]
    for sign in sides:
        sudden = [*_sudden(seen, sign, rule, rate * (1 - settings.slow_share) / len(sides), settings)]
        at = {iteration for iteration, *_ in sudden}
        slow = [*_slow(seen, sign, rule, rate * settings.slow_share / len(sides), settings)]
        both = [("sudden", change) for change in sudden] + [("slow", change) for change in slow if change[0] not in at]
        for word, (iteration, before, threshold, why) in both:
            point, now = next(pair for pair in seen if pair[0].iteration == iteration)
            yield Finding(
                rule=cast(Literal["sudden", "slow"], word),
                series=key,
                point=point,
                severity="critical" if abs(now.value - before.value) >= rule.critical else "warning",
                reference=before.value,
                threshold=threshold,
                text=_text(key, now, before, why),
            )


_Seen = Sequence[tuple[Point, _Figure]]
_Change = tuple[int, _Figure, float, str]  # the iteration, what it is compared with, the threshold, how it shows


def _sudden(seen: _Seen, sign: int, rule: Rule, rate: float, settings: Alerts) -> Iterator[_Change]:
    limit = NormalDist().inv_cdf(1 - rate / settings.iterations)
    for i, (point, now) in enumerate(seen):
        window = seen[max(0, i - settings.window) : i]
        before = _pooled([figure for _, figure in window])
        if before is None or min(now.n, before.n) < settings.min_n:
            continue
        error = _standard_error(now, before)
        needed = max(rule.warning, limit * error)
        if (now.value - before.value) * sign >= needed > 0:
            first, last = window[0][0].iteration, window[-1][0].iteration
            where = f"iteration {first}" if first == last else f"iterations {first} to {last}"
            yield point.iteration, before, before.value + sign * needed, f"in {where}"


def _slow(seen: _Seen, sign: int, rule: Rule, rate: float, settings: Alerts) -> Iterator[_Change]:
    limit = cusum_limit(settings.slow_k, rate, settings.iterations)
    total, start = 0.0, 0  # the CUSUM, and how many iterations there were when it last left zero
    for i, (point, now) in enumerate(seen):
        before = _pooled([figure for _, figure in seen[:i]])
        if before is None or min(now.n, before.n) < settings.min_n:
            continue
        error = _standard_error(now, before)
        start = i if total == 0.0 else start
        total = max(0.0, total + (sign * (now.value - before.value) / error if error else 0.0) - settings.slow_k)
        if total <= limit:
            continue
        reference, crossed = _pooled([figure for _, figure in seen[:start]]), total
        total = 0.0  # told of; it must build up again to be told of again
        if reference is not None and (now.value - reference.value) * sign >= rule.warning:
            until = seen[start - 1][0].iteration
            why = f"up to iteration {until}, bit by bit since: CUSUM {crossed:.1f}, limit {limit:.1f}"
            yield point.iteration, reference, reference.value + sign * rule.warning, why


def _collapse(fall: Finding, series: Mapping[SeriesKey, Sequence[Point]], settings: Alerts) -> Iterator[Finding]:
    reward = _now_and_before(series.get(SeriesKey("pseudo_reward"), ()), fall.point.iteration, settings)
    kl = _now_and_before(series.get(SeriesKey("kl"), ()), fall.point.iteration, settings)
    if reward is None or kl is None:
        return
    if reward[0] - reward[1] >= settings.collapse_jump and kl[0] >= settings.collapse_kl and kl[0] > kl[1]:
        text = (
            f"{fall.text}; meanwhile the pseudo-reward rose from {reward[1]:.3g} to {reward[0]:.3g} and the KL from "
            f"{kl[1]:.3g} to {kl[0]:.3g} nats a token: the Solver learns to agree with itself, not to be right"
        )
        yield Finding("collapse", fall.series, fall.point, "critical", fall.reference, fall.threshold, text)


def _now_and_before(points: Sequence[Point], iteration: int, settings: Alerts) -> tuple[float, float] | None:
    """A figure without an interval at an iteration, and its mean over the window before."""
    now = [point.value for point in points if point.iteration == iteration]
    before = [point.value for point in points if point.iteration < iteration][-settings.window :]
    return (now[0], sum(before) / len(before)) if now and before else None


@cache
def cusum_limit(k: float, rate: float, iterations: int) -> float:
    """The h that `S_t = max(0, S_{t-1} + z_t - k)` is above with probability `rate` in any of so many iterations, for
    independent standard normal z (Brook and Evans 1972)."""
    low, high = 0.0, 50.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if _crossing(middle, k, iterations) > rate else (low, middle)
    return high


def _crossing(h: float, k: float, iterations: int) -> float:
    """The chance that the CUSUM is above h in any of so many iterations: a Markov chain over cells of its range."""
    from scipy.special import ndtr  # most who import this module work out no limit, and it takes long

    width = h / (_STATES - 0.5)  # the first cell is 0 and half a width
    states = np.arange(_STATES) * width
    upper = ndtr(states[None, :] - states[:, None] + width / 2 + k)  # (from, to): the chance to end at or below a cell
    steps = np.diff(upper, axis=1, prepend=0.0)
    where = np.zeros(_STATES)
    where[0] = 1.0
    for _ in range(iterations):
        where = where @ steps
    return float(1.0 - where.sum())


def _figure(point: Point) -> _Figure | None:
    """A share whose interval is Wilson's of its own count is one of counts; one of a stratified sample is not."""
    if point.lo is None or point.hi is None or point.n == 0:
        return None
    # A mean of shares has its interval cut off at 0 and 1: its variance shows at the other end.
    cut = 0 < point.value < 1 and (point.lo <= 0 or point.hi >= 1)
    half = max(point.value - point.lo, point.hi - point.value) if cut else (point.hi - point.lo) / 2
    variance = (half / Z95) ** 2
    right = round(point.value * point.n)
    if not 0 <= right <= point.n or not math.isclose(right / point.n, point.value, abs_tol=1e-9):
        return _Figure(point.value, variance, point.n, None)
    counted = wilson(right, point.n)
    is_count = counted is not None and max(abs(counted[0] - point.lo), abs(counted[1] - point.hi)) < 1e-9
    return _Figure(point.value, variance, point.n, right if is_count else None)


def _pooled(figures: Sequence[_Figure]) -> _Figure | None:
    """Several iterations as one, each by its n; None for none."""
    if not figures:
        return None
    n = sum(figure.n for figure in figures)
    value = sum(figure.value * figure.n for figure in figures) / n
    variance = sum(figure.variance * (figure.n / n) ** 2 for figure in figures)
    counts = [figure.right for figure in figures if figure.right is not None]
    return _Figure(value, variance, n, sum(counts) if len(counts) == len(figures) else None)


def _standard_error(now: _Figure, before: _Figure) -> float:
    """Of the difference, while nothing changes: for counts with the share of both together."""
    if now.right is None or before.right is None:
        return math.sqrt(now.variance + before.variance)
    p = (now.right + before.right) / (now.n + before.n)
    return math.sqrt(p * (1 - p) * (1 / now.n + 1 / before.n))


def _text(key: SeriesKey, now: _Figure, before: _Figure, why: str) -> str:
    change = difference(_estimate(now), _estimate(before))
    over = f" over {key.over}" if key.over else ""
    oracle = f" by {key.oracle}" if key.oracle else ""
    name = key.name.replace("_", " ")
    if key.name in _MEANS:
        written = (f"{now.value:.4g}", f"{before.value:.4g}")
        moved = f"{change.value:+.3g} [{change.lo:+.3g}, {change.hi:+.3g}]"
    else:
        written = (f"{now.value:.1%}", f"{before.value:.1%}")
        moved = f"{100 * change.value:+.1f} points [{100 * change.lo:+.1f}, {100 * change.hi:+.1f}]"
    return (
        f"{name}{over}{oracle} is {written[0]} (n = {now.n:,}), against {written[1]} (n = {before.n:,}) {why}: {moved}"
    )


def _estimate(figure: _Figure) -> Estimate:
    half = Z95 * math.sqrt(figure.variance)
    interval = None if figure.right is None else wilson(figure.right, figure.n)
    lo, hi = interval or (figure.value - half, figure.value + half)
    return Estimate(figure.value, lo, hi, figure.n)
