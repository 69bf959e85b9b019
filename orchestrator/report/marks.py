"""Draws marks on axes: points with intervals, stacked bars, ticks, legends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from core.statistics.estimates import Estimate
from orchestrator.report.canvas import LIGHT, axes

Point = tuple[float, Estimate]

SEGMENTS = tuple(LIGHT[name] for name in ("c1", "c2", "c3", "c4", "c5", "c6", "c7"))
_BAR_WIDTH = 0.62


def note(chart: Axes, x: float, text: str) -> None:
    """Write a text above the axes at x."""
    above = chart.get_xaxis_transform()
    chart.text(x, 1.0, text, transform=above, ha="center", va="bottom", fontsize=8, color=LIGHT["muted"])


def line(chart: Axes, points: Sequence[Point], name: str, colour: str, marker: str, dashed: bool = False) -> None:
    """Draw points with their intervals. `colour` is a name in the palette or a colour."""
    if not points:
        return
    xs, values = [x for x, _ in points], [point.value for _, point in points]
    # Rounding may put the value slightly outside its own interval.
    low = [max(0.0, point.value - point.lo) for _, point in points]
    high = [max(0.0, point.hi - point.value) for _, point in points]
    chart.errorbar(
        xs,
        values,
        (low, high),
        label=name,
        color=LIGHT.get(colour, colour),
        marker=marker,
        markersize=4.5,
        linestyle="--" if dashed else "-",
        linewidth=1.8,
        elinewidth=1.2,
        capsize=2.5,
    )


def stacked_bars(
    title: str,
    rows: Sequence[tuple[str, Mapping[Any, float]]],
    names: Mapping[Any, str],
    share: bool,
    colours: Sequence[str] = SEGMENTS,
) -> Axes | None:
    """Horizontal bars, one for each row, the first on top. Segments that are 0 in all rows are left out.

    `names` maps the segments, in order, to the texts shown for them; `colours` are their colours. With `share`, every
    bar is scaled to 100%.
    """
    if not rows:
        return None
    chart = axes(title, height=max(3.0, 1.5 + 0.3 * len(rows)))
    left = np.zeros(len(rows))
    totals = np.array([max(sum(row.values()), 1e-9) for _, row in rows]) if share else np.ones(len(rows))
    for key, colour in zip(names, colours, strict=False):
        values = np.array([row[key] for _, row in rows]) / totals
        if values.any():
            bars = chart.barh(range(len(rows)), values, _BAR_WIDTH, left, color=colour, label=names[key])
            for bar in bars:  # a thin gap between neighbours of similar colour
                bar.set(edgecolor=LIGHT["paper"], linewidth=0.7)
            left += values
    if share:
        chart.xaxis.set_major_formatter(PercentFormatter(1))
        chart.set_xlim(0, 1)
    ticks = [f"{name}\nn = {int(sum(row.values())):,}" if share else name for name, row in rows]
    chart.set_yticks(range(len(rows)), ticks)
    chart.set_ylim(len(rows) - 0.5, -0.5)
    chart.grid(visible=False, axis="y")
    chart.grid(visible=True, axis="x", color=LIGHT["line"], linewidth=0.7)
    legend(chart, 3 if max(map(len, names.values())) > 5 else 4)
    return chart


def percent_axis(chart: Axes, top: float = 1.0) -> None:
    chart.set_ylim(0, 1.02 * top)  # so that a marker at the top is not cut off
    chart.yaxis.set_major_formatter(PercentFormatter(1, decimals=None if top < 0.1 else 0))


def iteration_ticks(chart: Axes, notes: Sequence[tuple[int, str]]) -> None:
    """Set a tick for each iteration, with a note below it."""
    chart.set_xticks([t for t, _ in notes], ["\n".join(filter(None, (t_name(t), note))) for t, note in notes])
    chart.set_xlim(notes[0][0] - 0.4, notes[-1][0] + 0.4)


def legend(chart: Axes, columns: int) -> None:
    """Add the legend of the whole picture below it, with each name once."""
    handles: dict[str, Any] = {}
    for other in chart.figure.axes:
        for handle, name in zip(*other.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    if handles:
        style: dict[str, Any] = {"frameon": False, "fontsize": 9, "labelcolor": LIGHT["ink"], "handlelength": 1.4}
        layout: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "columnspacing": 1.2}
        chart.figure.legend([*handles.values()], [*handles], **layout, **style)


def present(values: Sequence[tuple[float, Estimate | None]]) -> list[Point]:
    """The values that have been measured."""
    return [(x, value) for x, value in values if value is not None]


def scaled(estimate: Estimate, by: float) -> Estimate:
    return Estimate(by * estimate.value, by * estimate.lo, by * estimate.hi, estimate.n)


def t_name(t: int) -> str:
    return "base" if t == 0 else str(t)
