"""Pictures of several runs or models: panels of lines, one line for each, over iterations, training steps or k."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from core.figures import figure_of, is_share
from core.statistics.curves import CurvePoint
from core.statistics.estimates import Estimate
from orchestrator.pictures.canvas import INK, MUTED, as_file, grid
from services.comparison.models import ModelComparison
from services.comparison.runs import Comparison
from services.views.series import Curve

_COLOURS = ("#1f5fa8", "#b4540a", "#2b7a56", "#a8553a", "#5c4b7d", "#8a94a0", "#dba14a", "#86bbd8")
_MARKERS = "osD^vP*X"
_MANY = 40  # points of a line, beside whose markers and intervals the line could not be seen
_WIDTH, _WIDTH_OF_SEVERAL = 6.4, 3.4  # inches of a picture with one panel, and of a panel beside others
_COLUMNS = 4
_TITLES = {"greedy": "greedy accuracy", "majority": "accuracy of the majority", "pass_at_1": "pass@1"}  # of `SCORES`

X = Literal["iteration", "step", "k"]


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: name -> a line over `x`. `share` draws percent.

    `runs` has the curves of the runs of which a line is the mean. Each of their values is a dot. `inherited` has the
    iteration up to which a line is that of other runs. Its points up to there are hollow.
    """

    title: str
    lines: Mapping[str, Curve]
    x: X
    share: bool = True
    runs: Mapping[str, Sequence[Curve]] = field(default_factory=dict)
    inherited: Mapping[str, int | None] = field(default_factory=dict)


def picture_of(panels: Sequence[Panel], suffix: str = "png", columns: int | None = None) -> bytes:
    """A file of the panels (`suffix`: png, pdf or svg), with one legend; a name has the same colour in all of them.

    Without `columns`, the rows have nearly as many panels as one another, and at most four.
    """
    columns = columns or math.ceil(len(panels) / math.ceil(len(panels) / _COLUMNS))
    names = [*dict.fromkeys(name for panel in panels for name in panel.lines)]
    width = _WIDTH if len(panels) == 1 else _WIDTH_OF_SEVERAL
    charts = grid([panel.title for panel in panels], columns, width, 0.6 * width + 0.2)
    for chart, panel in zip(charts, panels, strict=True):
        _draw(chart, panel, names)
    _add_legend(charts, max(2, min(len(names), round(columns * width / 2.2))))
    return as_file(charts[0], suffix, dpi=200)


def arm_panel(comparison: Comparison, score: str) -> Panel:
    """One of `SCORES` of all arms by iteration. A point is the mean over seeds, with its interval over seeds."""
    curves = {arm.arm: arm.curves[score] for arm in comparison.arms}
    lines = {
        arm: {point.iteration: point.interval or _exact(point.mean) for point in points}
        for arm, points in curves.items()
    }
    runs = {
        arm: [{point.iteration: _exact(point.values[i]) for point in points} for i in range(len(points[0].values))]
        for arm, points in curves.items()
    }
    inherited = {arm.arm: arm.inherited for arm in comparison.arms}
    return Panel(f"{_TITLES[score]} on {comparison.benchmark}", lines, "iteration", runs=runs, inherited=inherited)


def series_panel(
    name: str,
    lines: Mapping[str, Curve],
    x: X,
    runs: Mapping[str, Sequence[Curve]],
    inherited: Mapping[str, int | None],
) -> Panel:
    """A series or a training metric of several arms, and of each of their runs."""
    figure, share = figure_of(name), is_share(name)
    title = name.replace("_", " ") + (f", {figure.unit}" if figure and figure.unit and not share else "")
    return Panel(title, lines, x, share, runs, inherited if x == "iteration" else {})


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
        colour, marker = _COLOURS[i % len(_COLOURS)], _MARKERS[i % len(_MARKERS)]
        if len(curve) > _MANY:
            chart.plot([*curve], [figure.value for figure in curve.values()], label=name, color=colour, linewidth=1.2)
        else:
            shift = i - (len(names) - 1) / 2
            points = _beside(curve, panel.x, shift)
            _draw_line(chart, points, name, colour, marker)
            if (until := panel.inherited.get(name)) is not None:
                hollow = [point for t, point in zip(curve, points, strict=True) if t <= until]
                xs, values = [x for x, _ in hollow], [figure.value for _, figure in hollow]
                chart.plot(xs, values, marker, color=colour, markerfacecolor="white", markersize=4.5, zorder=4)
            runs = panel.runs.get(name, [])
            for run in runs if len(runs) > 1 else []:
                dots = _beside({x: figure for x, figure in run.items() if x in curve}, panel.x, shift)
                xs, values = [x for x, _ in dots], [figure.value for _, figure in dots]
                chart.scatter(xs, values, 13, colour, alpha=0.5, linewidths=0, zorder=3)
    _fit_axis(chart, panel)
    positions = sorted({x for curve in panel.lines.values() for x in curve})
    if panel.x == "k":
        chart.set_xscale("log", base=2)
        chart.set_xticks(positions, list(map(str, positions)))
    elif panel.x == "iteration" and 0 < len(positions) <= 10:
        chart.set_xticks(positions, ["base" if t == 0 else str(t) for t in positions])
        chart.set_xlim(positions[0] - 0.4, positions[-1] + 0.4)
    else:
        chart.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    chart.minorticks_off()
    chart.set_xlabel(panel.x, color=MUTED, fontsize=9)


def _draw_line(chart: Axes, points: Sequence[tuple[float, Estimate]], name: str, colour: str, marker: str) -> None:
    """Draw points with their intervals."""
    if not points:
        return
    xs, values = [x for x, _ in points], [point.value for _, point in points]
    # Rounding may put the value slightly outside its own interval.
    low = [max(0.0, point.value - point.lo) for _, point in points]
    high = [max(0.0, point.hi - point.value) for _, point in points]
    look: dict[str, Any] = {"linewidth": 1.8, "elinewidth": 1.2, "capsize": 2.5, "markersize": 4.5}
    chart.errorbar(xs, values, (low, high), label=name, color=colour, marker=marker, **look)


def _add_legend(charts: Sequence[Axes], columns: int) -> None:
    """Add the legend of the whole picture below it, with each name once."""
    handles: dict[str, Any] = {}
    for chart in charts:
        for handle, name in zip(*chart.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    if handles:
        style: dict[str, Any] = {"frameon": False, "fontsize": 9, "labelcolor": INK, "handlelength": 1.4}
        layout: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "columnspacing": 1.2}
        charts[0].figure.legend([*handles.values()], [*handles], **layout, **style)


def _fit_axis(chart: Axes, panel: Panel) -> None:
    """Fit the axis to the values, those of single runs too, and to the intervals.

    On each side, an interval takes at most half as much of the axis as all values do: with two seeds, it would press
    everything else into a line. A longer one runs out of the chart. What is not finite is not drawn.
    """
    figures = [figure for curve in panel.lines.values() for figure in curve.values()]
    values = [figure.value for figure in figures]
    values += [figure.value for runs in panel.runs.values() for run in runs for figure in run.values()]
    ends = [*values, *(end for figure in figures for end in (figure.lo, figure.hi))]
    values, ends = ([number for number in numbers if math.isfinite(number)] for numbers in (values, ends))
    if not values:
        return
    span = max(values) - min(values) or 0.05 * (abs(values[0]) or 1.0)
    low, high = max(min(values) - span / 2, min(ends)), min(max(values) + span / 2, max(ends))
    margin = 0.06 * max(high - low, span)
    low, high = low - margin, high + margin
    if panel.share:  # a marker at 0% or 100% is not cut off
        low, high = max(low, -0.25 * margin), min(high, 1 + 0.25 * margin)
        chart.yaxis.set_major_formatter(PercentFormatter(1, decimals=None if high - low < 0.1 else 0))
    chart.set_ylim(low, high)


def _beside(curve: Curve, x: X, shift: float) -> list[tuple[float, Estimate]]:
    """The points, shifted a little, so that the intervals of several lines do not cover one another."""
    if x == "k":
        return [(k * 1.03**shift, figure) for k, figure in curve.items()]
    width = max(curve, default=0) - min(curve, default=0)
    step = 0.05 if x == "iteration" else 0.004 * width
    return [(position + shift * step, figure) for position, figure in curve.items()]


def _exact(value: float) -> Estimate:
    return Estimate(value, value, value, 1)
