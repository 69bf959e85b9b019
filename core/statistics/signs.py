"""The guard's signals that are read from a run's series: what goes wrong before accuracy falls.

- `overconfidence`, where an oracle audits: mean p_hat of the kept questions is above their label accuracy. While
  agreement tells something, a majority is right more often than its own share of the votes. Survive or Collapse (arXiv
  2605.22217) calls the difference the intrinsic-grounded gap.
- `out_of_reach`, in a world that a program knows: the kept questions take more than `REACH` times as many operations as
  those of the benchmark that the Solver answers right. If it solves a benchmark's questions up to some number of
  operations, and the benchmark has as many questions of each, their mean is half of that number, and half an operation.
  So questions that are just out of its reach are no alarm.
- `unanimity` and `monotony`: fewer questions split the votes, or more have the same skeleton, than in the iterations
  before, by the tests of `core.statistics.changes`.

In a run that never crosses a signal's line, or in which nothing changes, chance shows the signal within
`Alerts.iterations` iterations with a probability of at most `Alerts.rate`; the last two share one such rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from core.figures import ASKED, OVERCONFIDENCE, SOLVED
from core.statistics.alerts import Alerts
from core.statistics.changes import Point, SeriesKey, findings
from core.statistics.estimates import t95
from core.statistics.guard import Sign, Signal

REACH = 2.0
_CHANGES: dict[str, Signal] = {"split_share": "unanimity", "same_skeleton_share": "monotony"}  # by the series


def signs_in(iteration: int, series: Mapping[SeriesKey, Sequence[Point]], settings: Alerts) -> Iterator[Sign]:
    """The signs of an iteration. `series` has the points of it and of those that it is compared with, in order; a
    figure that rests on fewer than `min_n` items makes no sign."""
    now = {
        key: (point, (point.value - point.lo) / t95(point.n - 1))  # and its standard error
        for key, points in series.items()
        for point in points
        if point.iteration == iteration and point.lo is not None and point.n >= settings.min_n
    }
    gaps = {key.oracle: of for key, of in now.items() if (key.name, key.over) == (OVERCONFIDENCE, "kept")}
    for oracle, (gap, error) in gaps.items():
        least = _least(gap.n, settings, len(gaps)) * error
        if gap.value > least:
            text = f"mean p_hat of the kept questions is {100 * gap.value:.1f} points above their label accuracy"
            yield Sign("overconfidence", gap.value, least, f"{text} by {oracle} (n = {gap.n:,})")
    asked, solved = now.get(SeriesKey(ASKED, "kept")), now.get(SeriesKey(SOLVED))
    if asked is not None and solved is not None:
        n = min(asked[0].n, solved[0].n)
        least = REACH * solved[0].value + _least(n, settings) * math.hypot(asked[1], REACH * solved[1])
        if asked[0].value > least:
            text = f"the kept questions take {asked[0].value:.1f} operations on average (n = {asked[0].n:,})"
            of = f"those of the benchmark that the Solver answers right {solved[0].value:.1f} (n = {solved[0].n:,})"
            yield Sign("out_of_reach", asked[0].value, least, f"{text}, {of}")
    changes = Alerts(rate=settings.rate, min_n=settings.min_n, figures=tuple(_CHANGES))
    for finding in findings(series, changes):
        if finding.point.iteration == iteration:
            yield Sign(_CHANGES[finding.series.name], finding.point.value, finding.threshold, finding.text)


def _least(n: int, settings: Alerts, tests: int = 1) -> float:
    """The standard errors that one of so many tests of an iteration needs, by Student's distribution."""
    from scipy.special import stdtrit  # slow to import, and few callers need it

    return float(stdtrit(n - 1, 1 - settings.rate / settings.iterations / tests))
