"""Draws a square matrix of numbers from -1 to 1 as coloured cells."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from orchestrator.pictures.canvas import BLUE, INK, PAPER, RUST, axes

_COLOURS = LinearSegmentedColormap.from_list("correlation", [RUST, PAPER, BLUE])
_DARK = 0.6  # cells with a larger absolute value are dark and get light text
_INCHES_PER_CELL = 0.62


def correlations(title: str, names: Sequence[str], matrix: Sequence[Sequence[float | None]]) -> Axes:
    """A matrix of correlations between `names`: `matrix[i][j]` is in -1..1, or None for an empty cell."""
    side = 1.6 + _INCHES_PER_CELL * len(names)
    chart = axes(title, width=side + 0.6, height=side)
    numbers = [[float("nan") if value is None else value for value in row] for row in matrix]
    chart.imshow(numbers, cmap=_COLOURS, vmin=-1, vmax=1)
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            ink = PAPER if value is not None and abs(value) > _DARK else INK
            chart.text(j, i, "–" if value is None else f"{value:.2f}", ha="center", va="center", fontsize=8, color=ink)
    chart.set_xticks(range(len(names)), names, rotation=45, ha="right")
    chart.set_yticks(range(len(names)), names)
    chart.grid(visible=False)
    chart.spines["bottom"].set_visible(False)
    return chart
