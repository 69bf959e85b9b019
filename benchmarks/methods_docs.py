"""Writes the tables and the picture of docs/methods.md from the output of `coevo bench methods --json`:

coevo bench methods --json > methods.json
python -m benchmarks.methods_docs methods.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.pages import DOCS, write_measured

_COLOURS = {"pass_at_1": "#1f5fa8", "maj_at_k": "#2b7a56", "pass_at_k": "#b4540a"}
_NAMES = {"pass_at_1": "pass@1", "maj_at_k": "maj@8", "pass_at_k": "pass@8"}
_ARMS = {
    "srt_pushed": "SRT",
    "truth_pushed": "RLOO, true labels",
    "srt_guarded": "SRT, guard stops it",
    "truth_guarded": "RLOO, true labels, guard on",
}
_PUSHED = {"srt_pushed": ("SRT", "#a8553a"), "truth_pushed": ("RLOO, true labels", "#1f5fa8")}


def write(figures: dict[str, Any]) -> None:
    """Replace the measured part of docs/methods.md, and draw docs/methods.png."""
    write_measured(DOCS / "methods.md", [_methods(figures), _claims(figures), _pushed(figures)])
    _draw(figures).savefig(DOCS / "methods.png", dpi=130)


def _methods(figures: dict[str, Any]) -> str:
    lines = [
        "| method | pass@1 | pass@8 | maj@8 | entropy, nats | strategies of 8 | right ones | labels right |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in {"base": figures["base"], **figures["methods"]}.items():
        labels = row.get("label_accuracy")
        cells = [_percent(row[key]) for key in ("pass_at_1", "pass_at_k", "maj_at_k")]
        cells += [_number(row["entropy"], 3), _number(row["distinct"], 2), _number(row["distinct_right"], 2)]
        lines.append(f"| {name} | {' | '.join(cells)} | {'' if labels is None else _labels(row)} |")
    return "\n".join(lines)


def _labels(row: dict[str, Any]) -> str:
    share = row["labelled"]["value"]
    labelled = "" if share > 0.999 else f", {100 * share:.0f}% labelled"
    return f"{_percent(row['label_accuracy'])}, n = {row['label_accuracy']['n']:,}{labelled}"


def _claims(figures: dict[str, Any]) -> str:
    lines = ["| claim | difference, over seeds | by seed | over the choice of questions | |", "|---|---|---|---|---|"]
    for claim, claim_figures in figures["claims"].items():
        difference = _number(claim_figures, 3)
        seeds = ", ".join(f"{value:+.3f}" for value in claim_figures["per_seed"])
        questions = (
            ""
            if claim_figures["questions_ci95"] is None
            else "[{:.3f}, {:.3f}]".format(*claim_figures["questions_ci95"])
        )
        lines.append(f"| {claim} | {difference} | {seeds} | {questions} | {_verdict(claim_figures)} |")
    return "\n".join(lines)


def _verdict(claim: dict[str, Any]) -> str:
    """What the interval over seeds says. That over the choice of questions says nothing about another training."""
    low, high = claim["ci95"]
    if low > 0:
        return "reproduces"
    return "the other way round" if high < 0 else "not told apart"


def _pushed(figures: dict[str, Any]) -> str:
    lines = [
        "| pushed | seed | steps | peak pass@1 | at the end | lost | best by validation |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, name in _ARMS.items():
        for training in figures["pushed"][key]:
            cells = [_points(training[figure]) for figure in ("peak", "final", "lost", "restored")]
            lines.append(f"| {name} | {training['seed']} | {training['steps']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _points(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _percent(figure: dict[str, Any]) -> str:
    low, high = figure["ci95"]
    return f"{100 * figure['value']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def _number(figure: dict[str, Any], digits: int) -> str:
    low, high = figure["ci95"]
    return f"{figure['value']:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _draw(figures: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(12, 5.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_methods(left, figures)
    _draw_pushed(right, figures)
    return figure


def _draw_methods(axes: Axes, figures: dict[str, Any]) -> None:
    rows = {"base": figures["base"], **figures["methods"]}
    for shift, (key, name) in zip((-0.22, 0, 0.22), _NAMES.items(), strict=True):
        for y, row in enumerate(rows.values()):
            value, (low, high) = row[key]["value"], row[key]["ci95"]
            axes.plot([100 * low, 100 * high], [y + shift] * 2, color=_COLOURS[key], linewidth=2)
            label = name if y == 0 else None  # one legend entry per figure
            axes.plot(100 * value, y + shift, "o", color=_COLOURS[key], markersize=5, label=label)
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_xlabel("percent of held-out questions, 95% intervals over questions")
    axes.set_title("Held-out accuracy after training", loc="left", fontweight="bold")
    axes.legend(frameon=False, loc="lower left")
    _set_style(axes, "x")


def _draw_pushed(axes: Axes, figures: dict[str, Any]) -> None:
    for key, (name, colour) in _PUSHED.items():
        for index, training in enumerate(figures["pushed"][key]):
            curve: Sequence[tuple[int, float]] = training["curve"]
            steps, values = [step for step, _ in curve], [100 * value for _, value in curve]
            axes.plot(steps, values, color=colour, linewidth=1.6, label=name if index == 0 else None)
    guarded = [training for training in figures["pushed"]["srt_guarded"] if training["seed"] in figures["seeds"]]
    for index, training in enumerate(guarded):
        label = "where the guard stops SRT" if index == 0 else None
        axes.plot(training["steps"], 100 * training["final"], "s", color="#1c2128", markersize=7, label=label)
    axes.set_xlabel("step")
    axes.set_ylabel("held-out pass@1, percent")
    axes.set_title("Pushed: lr 1e-3, no KL; one line per seed", loc="left", fontweight="bold")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.3, 0.83))
    _set_style(axes, "y")


def _set_style(axes: Axes, grid: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#d8d5cd", linewidth=0.7)
    axes.set_axisbelow(True)


if __name__ == "__main__":
    write(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
