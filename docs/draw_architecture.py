"""Draw docs/pictures/architecture.svg from the source, and write the table of packages of docs/architecture.md from
their docstrings: `python docs/draw_architecture.py`."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).parents[1]
# From the top: what imports, and what is imported.
PLACES = {
    "benchmarks": (-0.1, 3.35),
    "orchestrator": (1.5, 2.9),
    "services": (0.7, 1.6),
    "trainers": (2.5, 2.0),
    "storage": (0.5, 0.6),
    "core": (1.5, -0.3),
}
BEGIN, END = "<!-- begin folders -->", "<!-- end folders -->"
WIDTH, PAPER, INK, LINE = 1.0, "#ffffff", "#22252b", "#8a94a6"


def imports() -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """Lines of each package, and (importer, imported) -> how many import statements."""
    lines, edges = Counter[str](), Counter[tuple[str, str]]()
    for package in PLACES:
        for path in (ROOT / package).rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            lines[package] += source.count("\n")
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.ImportFrom) and node.module:
                    target = node.module.partition(".")[0]
                    if target in PLACES and target != package:
                        edges[package, target] += 1
    return lines, edges


def draw(target: Path) -> None:
    mpl.rcParams["svg.hashsalt"] = "coevo"  # the same picture of the same source
    lines, edges = imports()
    figure = Figure(figsize=(7, 5), facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(-0.7, 3.1)
    axes.set_ylim(-0.8, 3.7)
    boxes = {}
    for package, (x, y) in PLACES.items():
        height = 0.3 + lines[package] / 20_000
        corner, look = (x - WIDTH / 2, y - height / 2), {"facecolor": PAPER, "edgecolor": INK, "linewidth": 1.2}
        box = FancyBboxPatch(corner, WIDTH, height, boxstyle="round,pad=0.02", **look, zorder=2)
        boxes[package] = axes.add_patch(box)
        text = f"{package}\n{lines[package]:,} lines"
        axes.text(x, y, text, ha="center", va="center", color=INK, fontsize=10, zorder=3)
    for (source, imported), count in sorted(edges.items()):
        ends = {"posA": PLACES[source], "posB": PLACES[imported], "patchA": boxes[source], "patchB": boxes[imported]}
        style = {"arrowstyle": "-|>", "mutation_scale": 14, "linewidth": 0.6 + count / 60, "color": LINE}
        axes.add_patch(FancyArrowPatch(**ends, **style, shrinkA=2, shrinkB=2, zorder=1))
    figure.savefig(target, format="svg", metadata={"Date": None})


def folders() -> str:
    """A table of the packages: what the docstring of each says first, and the names of its folders."""
    rows = []
    for package in sorted(PLACES):
        docstring = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))) or ""
        about = docstring.partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        inside = ", ".join(f"`{path.parent.name}`" for path in sorted((ROOT / package).glob("*/__init__.py")))
        rows.append(f"| `{package}` | {about} | {inside} |\n")
    return "| package | what is in it | its folders |\n|---|---|---|\n" + "".join(rows)


def with_folders(page: str) -> str:
    """The page with its table made anew."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{folders()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    draw(ROOT / "docs" / "pictures" / "architecture.svg")
    page = ROOT / "docs" / "architecture.md"
    page.write_text(with_folders(page.read_text(encoding="utf-8")), encoding="utf-8")
