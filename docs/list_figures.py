"""Write what is made from `core/figures.py`: the tables of docs/alerts.md, Grafana's dashboard, and what the pages of
coevo's own dashboard know of a figure: `python docs/list_figures.py`.
"""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable, Iterable
from pathlib import Path

from core.figures import FIGURES, RULES, SIGNS, figures_of_rule

ROOT = Path(__file__).parents[1]
GRAFANA = ROOT / "deploy" / "grafana"


def figures() -> Iterable[str]:
    yield from ("| series | what it is | n counts (empty: steps) |", "|---|---|---|")
    for figure in FIGURES.values():
        of = "" if figure.steps and not figure.interval else figure.of
        yield f"| `{figure.name}` | {figure.text} | {of} |"


def rules() -> Iterable[str]:
    yield from ("| rule | over | direction | warning | critical |", "|---|---|---|---|---|")
    for name, rule in RULES.items():
        tested = ", ".join(f"`{figure}`" for figure in figures_of_rule(name))
        unit = "" if FIGURES[name].unit == "ratio" else f" {FIGURES[name].unit}"
        condition = "" if rule.usual else ", if in `figures`"
        sizes = f"{rule.warning:g}{unit} | {rule.critical:g}{unit}"
        yield f"| {tested}{condition} | {rule.over} | {rule.direction} | {sizes} |"


def with_tables(page: str) -> str:
    """The page with both tables made anew."""
    for name, lines in (("figures", figures()), ("rules", rules())):
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        table = "\n".join(lines)
        pattern = f"(?s)({re.escape(begin)}\n).*?(\n{re.escape(end)})"
        page = re.sub(pattern, lambda match, table=table: f"{match[1]}\n{table}\n{match[2]}", page)
    return page


def module(_: str) -> str:
    """The module with what the dashboard's pages need to know of each figure."""
    text = json.dumps
    entries = (
        f"  {figure.name}: {{ title: {text(figure.title)}, unit: {text(figure.shown_unit)}, "
        f"share: {text(figure.unit == 'ratio')} }},"
        for figure in FIGURES.values()
    )
    return "\n".join(
        (
            "// The figures of core/figures.py; docs/list_figures.py writes this file.",
            "/** @type {Record<string, { title: string, unit: string, share: boolean }>} */",
            "export const FIGURES = {",
            *entries,
            "};",
            "/** The signs of collapse, in their order. */",
            "export const SIGNS = [",
            *(f"  {text(name)}," for name in SIGNS),
            "];",
            "",
        )
    )


# File -> its text made anew from the present one.
MADE: dict[Path, Callable[[str], str]] = {
    ROOT / "docs" / "alerts.md": with_tables,
    GRAFANA / "dashboards" / "coevo.json": runpy.run_path(str(GRAFANA / "draw.py"))["with_figures"],
    ROOT / "services" / "dashboard" / "static" / "known_figures.js": module,
}


if __name__ == "__main__":
    for file, made_anew in MADE.items():
        file.write_text(made_anew(file.read_text(encoding="utf-8")), encoding="utf-8")
