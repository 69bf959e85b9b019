"""The picture of a comparison: accuracy by iteration, one line for each arm."""

from __future__ import annotations

from core.statistics.estimates import Estimate
from orchestrator.report.canvas import LIGHT, as_png, axes
from orchestrator.report.marks import iteration_ticks, legend, line, percent_axis
from services.comparison import Comparison, Point

_COLOURS = ("pass", "greedy", "majority", "c4", "c6", "c5", "c3", "c2")
_MARKERS = "osD^vP*X"


def picture_of(comparison: Comparison, name: str = "greedy") -> bytes:
    """A PNG with a figure of all arms by iteration. A point is the mean over seeds, with its interval over seeds."""
    chart = axes(f"{name} accuracy on {comparison.benchmark}", width=6.4, height=4.0)
    iterations: set[int] = set()
    for i, arm in enumerate(comparison.arms):
        points = arm.curves[name]
        iterations |= {point.iteration for point in points}
        colour, marker = LIGHT[_COLOURS[i % len(_COLOURS)]], _MARKERS[i % len(_MARKERS)]
        shift = 0.05 * (i - (len(comparison.arms) - 1) / 2)  # so that intervals do not cover one another
        means = [(point.iteration + shift, _estimate(point)) for point in points]
        line(chart, means, arm.arm, colour, marker)
    percent_axis(chart)
    iteration_ticks(chart, [(t, "") for t in sorted(iterations)])
    legend(chart, 3)
    return as_png(chart)


def _estimate(point: Point) -> Estimate:
    """The mean over seeds with its interval, or the single run's value alone."""
    return point.interval or Estimate(point.mean, point.mean, point.mean, 1)
