"""Axes in the report's style, and their rendering as inline SVG (for the page) or as a file.

Charts are drawn in the colours of the light page. In an SVG each colour is replaced by the CSS variable of its name,
which the page defines for light and dark mode, so that one picture serves both.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

# Name -> (light, dark). No two light colours are equal, because `as_svg` finds the name of a colour by its light value.
# Series also differ in their markers and in lightness.
COLOURS = {
    "ink": ("#1c2128", "#e6e4df"),
    "muted": ("#656c76", "#9aa1ab"),
    "line": ("#d8d5cd", "#383e47"),
    "paper": ("#fffefb", "#1a1e24"),
    "pass": ("#1f5fa8", "#6cabf2"),
    "greedy": ("#b4540a", "#f2a051"),
    "majority": ("#2b7a56", "#5fc795"),
    "right": ("#2c7fb8", "#4f9fd8"),
    "wrong": ("#d7a9a0", "#7d4a44"),
    "asked": ("#7b8794", "#8b97a5"),
    "band": ("#e9dfc3", "#4a432c"),
    "c1": ("#33658a", "#5b9bd0"),
    "c2": ("#86bbd8", "#2f5f80"),
    "c3": ("#dba14a", "#d9a253"),
    "c4": ("#a8553a", "#b8644a"),
    "c5": ("#8a94a0", "#77818d"),
    "c6": ("#5c4b7d", "#9c88c4"),
    "c7": ("#bdb6a8", "#565c66"),
    "early": ("#b9c6d4", "#4f5c6b"),
    "late": ("#123f78", "#8cc1ff"),
}
LIGHT = {name: light for name, (light, _) in COLOURS.items()}
_NAMES = {light: name for name, light in LIGHT.items()}
_PIXELS_PER_POINT = 1.36
mpl.rcParams["text.parse_math"] = False  # names may have two `$`; no text of ours is a formula
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # keeps text as text, which can be read aloud and searched, and uses the page's font
    "font.family": ["DejaVu Sans"],
    "path.simplify": False,
}


def axes(title: str, width: float = 4.0, height: float = 3.0, pad: float = 10) -> Axes:
    """Empty axes with a left-aligned title, `pad` points above them; `width` and `height` are in inches."""
    return grid([title], 1, width, height, pad)[0]


def grid(titles: Sequence[str], columns: int, width: float, height: float, pad: float = 10) -> list[Axes]:
    """Empty axes as `axes` makes them, several in one picture; `width` and `height` are those of each."""
    rows = math.ceil(len(titles) / columns)
    size = (columns * width, rows * height)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06))
    figure.patch.set_alpha(0)
    return [_empty(figure.add_subplot(rows, columns, i), title, pad) for i, title in enumerate(titles, 1)]


def _empty(chart: Axes, title: str, pad: float) -> Axes:
    chart.patch.set_alpha(0)
    chart.set_title(title, loc="left", fontsize=11, fontweight="bold", color=LIGHT["ink"], pad=pad)
    chart.spines[["top", "right", "left"]].set_visible(False)
    chart.spines["bottom"].set_color(LIGHT["line"])
    chart.tick_params(colors=LIGHT["muted"], labelsize=9.5, length=0, pad=5)
    chart.grid(axis="y", color=LIGHT["line"], linewidth=0.7)
    chart.set_axisbelow(True)
    return chart


def step_colour(iteration: int, last: int) -> str:
    """The colour of an iteration in 0..`last`, between the colours "early" and "late"."""
    share = iteration / last if last else 1.0
    early, late = (mpl.colors.to_rgb(LIGHT[name]) for name in ("early", "late"))
    red, green, blue = (a + (b - a) * share for a, b in zip(early, late, strict=True))
    colour: str = mpl.colors.to_hex((red, green, blue))
    return colour


def as_svg(chart: Axes, name: str, description: str) -> str:
    """The chart as an `svg` element for HTML: colours are CSS variables, ids begin with `name`, nothing is external.

    Raises:
        ValueError: the chart has a colour that is not in `COLOURS`, so that a dark page has no value for it.
    """
    target = io.StringIO()
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        _figure(chart).savefig(target, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = target.getvalue()
    svg = svg[svg.index("<svg") :]
    box = re.search(r'viewBox="([0-9. ]+)"', svg)
    if box is None:
        raise ValueError(f"picture {name}: expected an SVG with a viewBox")
    body = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index(">") + 1 :], flags=re.DOTALL)
    body = re.sub(r"#[0-9a-f]{6}\b", lambda match: _variable(match[0], name), body)
    # The maximum width limits the size of the text to that of the page's small print, whatever the chart's width.
    max_width = _PIXELS_PER_POINT * float(box[1].split()[2])
    label = escape(description)
    return (
        f'<svg viewBox="{box[1]}" style="max-width: {max_width:.0f}px" role="img" aria-label="{label}">'
        f"{_with_unique_ids(body, name)}"
    )


def as_file(chart: Axes, suffix: str = "png", dpi: int = 150) -> bytes:
    """The chart as a file of this kind, with a white ground, since it may be shown on a dark page or printed.

    The same chart gives the same bytes.
    """
    target, figure = io.BytesIO(), _figure(chart)
    figure.patch.set_alpha(1)
    date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix)
    style = {**_STYLE, "svg.fonttype": "path", "svg.hashsalt": "coevo", "pdf.fonttype": 42}  # 42 embeds the font
    with mpl.rc_context(style):
        figure.savefig(target, format=suffix, dpi=dpi, facecolor="white", metadata=date)
    return target.getvalue()


def _figure(chart: Axes) -> Figure:
    figure = chart.get_figure(root=True)
    if figure is None:
        raise ValueError("chart: expected the result of `axes`, got axes without a figure")
    return figure


def _with_unique_ids(svg: str, name: str) -> str:
    """Prefix the ids that are referenced with the picture's name and drop the others, since pictures share a page."""
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda match: f' id="{name}-{match[1]}"' if match[1] in used else "", svg)
    return re.sub(r'(url\(|href=")#([^)"]+)', rf"\g<1>#{name}-\g<2>", svg)


def _variable(colour: str, name: str) -> str:
    """The CSS expression for a colour of the picture `name`. Raises `ValueError` for an unknown colour."""
    if colour in _NAMES:
        return f"var(--{_NAMES[colour]})"
    share = _step_share(colour)
    if share is None:
        raise ValueError(f"picture {name}: expected a colour of the report, got {colour}")
    return f"color-mix(in srgb, var(--late) {100 * share:.0f}%, var(--early))"


def _step_share(colour: str) -> float | None:
    """The share that gives this colour in `step_colour`, up to rounding; None for a colour of another origin."""
    rgb, early, late = (mpl.colors.to_rgb(shade) for shade in (colour, LIGHT["early"], LIGHT["late"]))
    share = (rgb[0] - early[0]) / (late[0] - early[0])
    is_between = all(abs(a + (b - a) * share - value) < 0.01 for a, b, value in zip(early, late, rgb, strict=True))
    return share if is_between and -0.01 <= share <= 1.01 else None
