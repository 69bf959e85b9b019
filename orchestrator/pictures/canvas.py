"""Axes in one style, several in a picture, and the picture as a file."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

INK, MUTED, LINE = "#1c2128", "#656c76", "#d8d5cd"
mpl.rcParams["text.parse_math"] = False  # names may have two `$`; no text of ours is a formula
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "path",
    "svg.hashsalt": "coevo",  # the same ids in the same picture
    "pdf.fonttype": 42,  # embeds the font
    "font.family": ["DejaVu Sans"],
    "path.simplify": False,
}


def grid(titles: Sequence[str], columns: int, width: float, height: float) -> list[Axes]:
    """Empty axes with left-aligned titles, in one picture; `width` and `height` are those of each, in inches."""
    rows = math.ceil(len(titles) / columns)
    size = (columns * width, rows * height)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06))
    charts = []
    for i, title in enumerate(titles, 1):
        chart = figure.add_subplot(rows, columns, i)
        chart.patch.set_alpha(0)
        chart.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK, pad=10)
        chart.spines[["top", "right", "left"]].set_visible(False)
        chart.spines["bottom"].set_color(LINE)
        chart.tick_params(colors=MUTED, labelsize=9.5, length=0, pad=5)
        chart.grid(axis="y", color=LINE, linewidth=0.7)
        chart.set_axisbelow(True)
        charts.append(chart)
    return charts


def as_file(chart: Axes, suffix: str = "png", dpi: int = 150) -> bytes:
    """The chart's picture as a file of this kind, with a white ground, since it may be shown on a dark page or printed.

    The same chart gives the same bytes.
    """
    figure = chart.get_figure(root=True)
    if figure is None:
        raise ValueError("chart: expected one of `grid`, got axes without a figure")
    target = io.BytesIO()
    date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix)
    with mpl.rc_context(_STYLE):
        figure.savefig(target, format=suffix, dpi=dpi, facecolor="white", metadata=date)
    return target.getvalue()
