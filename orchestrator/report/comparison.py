"""Pictures of several runs or models: panels of lines, one line for each, over iterations, training steps or k."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from core.statistics.curves import CurvePoint
from core.statistics.estimates import Estimate
from orchestrator.report.canvas import LIGHT, as_png, grid
from orchestrator.report.marks import iteration_ticks, legend, line, percent_axis
from services.api.figure_metrics import figure_of, is_share
from services.comparison import Comparison, Point
from services.model_comparison import ModelComparison
from services.run_series import Curve

_COLOURS = ("pass", "greedy", "majority", "c4", "c6", "c5", "c3", "c2")
_MARKERS = "osD^vP*X"
_MANY = 40  # points of a line, beside whose markers and intervals the line could not be seen
_WIDTH, _WIDTH_OF_SEVERAL = 6.4, 3.4  # inches of a picture with one panel, and of a panel beside others
_COLUMNS = 4

X = Literal["iteration", "step", "k"]


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: name -> a line over `x`. `share` draws percent."""

    title: str
    lines: Mapping[str, Curve]
    x: X
    share: bool = True


def picture_of(panels: Sequence[Panel], columns: int | None = None) -> bytes:
    """A PNG of the panels, with one legend; a name has the same colour in all of them. Without `columns`, the rows have
    nearly as many panels as one another, and at most four."""
    columns = columns or math.ceil(len(panels) / math.ceil(len(panels) / _COLUMNS))
    names = [*dict.fromkeys(name for panel in panels for name in panel.lines)]
    width = _WIDTH if len(panels) == 1 else _WIDTH_OF_SEVERAL
    charts = grid([panel.title for panel in panels], columns, width, 0.6 * width + 0.2)
    for chart, panel in zip(charts, panels, strict=True):
        _draw(chart, panel, names)
    legend(charts[0], max(2, min(len(names), round(columns * width / 2.2))))
    return as_png(charts[0])


def arm_panel(comparison: Comparison) -> Panel:
    """Greedy accuracy of all arms by iteration. A point is the mean over seeds, with its interval over seeds."""
    lines = {arm.arm: {point.iteration: _estimate(point) for point in arm.curves["greedy"]} for arm in comparison.arms}
    return Panel(f"greedy accuracy on {comparison.benchmark}", lines, "iteration")


def series_panel(name: str, lines: Mapping[str, Curve], x: X) -> Panel:
    """A series or a training metric of several arms."""
    figure, share = figure_of(name), is_share(name)
    title = name.replace("_", " ") + (f", {figure.unit}" if figure and figure.unit and not share else "")
    return Panel(title, lines, x, share)


def metric_panels(comparison: ModelComparison, positions: Mapping[str, tuple[str, int]], x: X) -> list[Panel]:
    """For each metric the figures on each benchmark, then their average. `positions` has each model's line and x."""
    panels = []
    for metric in dict.fromkeys(row.metric for row in comparison.rows):
        rows = [row for row in comparison.rows if row.metric == metric]
        cells = {
            f"{benchmark.name}, {metric or benchmark.metric}": {
                row.model: row.cells.get(benchmark.name) for row in rows
            }
            for benchmark in comparison.benchmarks
        }
        cells[f"average{f', {metric}' if metric else ''}"] = {row.model: row.average for row in rows}
        for title, of_models in cells.items():
            lines: dict[str, Curve] = {}
            for model, cell in of_models.items():
                if cell is not None:
                    name, position = positions[model]
                    lines.setdefault(name, {})[position] = cell.figure
            if lines:
                panels.append(Panel(title, lines, x))
    return panels


def k_panels(curves: Mapping[str, Mapping[str, Sequence[CurvePoint]]]) -> list[Panel]:
    """pass@k, maj@k and the majority's share by k: a row of panels for each, with a panel for each benchmark."""
    return [
        Panel(
            f"{benchmark}: {title}",
            {model: {point.k: getattr(point, figure) for point in points} for model, points in models.items()},
            "k",
        )
        for figure, title in (("pass_at_k", "pass@k"), ("maj_at_k", "maj@k"), ("share_at_k", "majority's share"))
        for benchmark, models in curves.items()
    ]


def _draw(chart: Axes, panel: Panel, names: Sequence[str]) -> None:
    for name, curve in panel.lines.items():
        i = names.index(name)
        colour, marker = LIGHT[_COLOURS[i % len(_COLOURS)]], _MARKERS[i % len(_MARKERS)]
        if len(curve) > _MANY:
            chart.plot([*curve], [figure.value for figure in curve.values()], label=name, color=colour, linewidth=1.2)
        else:
            line(chart, _beside(curve, panel.x, i - (len(names) - 1) / 2), name, colour, marker)
    if panel.share:
        highest = max(figure.hi for curve in panel.lines.values() for figure in curve.values())
        percent_axis(chart, min(1.0, 1.1 * highest) or 1.0)
    positions = sorted({x for curve in panel.lines.values() for x in curve})
    if panel.x == "k":
        chart.set_xscale("log", base=2)
        chart.set_xticks(positions, list(map(str, positions)))
    elif panel.x == "iteration" and len(positions) <= 10:
        iteration_ticks(chart, [(t, "") for t in positions])
    else:
        chart.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    chart.minorticks_off()
    chart.set_xlabel(panel.x, color=LIGHT["muted"], fontsize=9)


def _beside(curve: Curve, x: X, shift: float) -> list[tuple[float, Estimate]]:
    """The points, shifted a little, so that the intervals of several lines do not cover one another."""
    if x == "k":
        return [(k * 1.03**shift, figure) for k, figure in curve.items()]
    width = max(curve) - min(curve)
    step = 0.05 if x == "iteration" else 0.004 * width
    return [(position + shift * step, figure) for position, figure in curve.items()]


def _estimate(point: Point) -> Estimate:
    """The mean over seeds with its interval, or the single run's value alone."""
    return point.interval or Estimate(point.mean, point.mean, point.mean, 1)
