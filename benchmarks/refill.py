"""Steps and sampled tokens to a given pass@1, with and without further prompts for those that teach nothing.

Each pair of trainings on true labels (DAPO's setting, arXiv 2503.14476) has the same base model, seed and questions.
Only `solver.training.refill` differs: up to as many further prompts a step as the step has. Between evaluations, pass@1
is interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from benchmarks.tiny_training import BASE, TRAINED, Arm, Outcome, outcomes
from core.statistics.seeds import over_seeds

SEEDS = (1, 2, 3, 4, 5)
LEVELS = (0.4, 0.5)
_PROMPTS = 32  # of a step
_ARMS = {
    "without": Arm("supervised", "truth", every=4),
    "with": Arm("supervised", "truth", every=4, refill=_PROMPTS),
}


def run() -> dict[str, Any]:
    """{pass@1 in percent: {steps, tokens}}, each {without, with: by seed, ratio: with its interval}, {final, dead}.

    The ratio is the geometric mean over seeds of with by without, with Student's 95% interval of the logarithms. A
    training that did not reach the pass@1 has no figure; the ratio is null then. `final` is pass@1 at the end, and
    `dead` the share of groups without an advantage in the trainings without refill, by seed.
    """
    results = outcomes({BASE: None} | {(f"refill-{name}", seed): arm for name, arm in _ARMS.items() for seed in SEEDS})
    arms = {name: [results[f"refill-{name}", seed] for seed in SEEDS] for name in _ARMS}
    base = fmean(results[BASE]["held_out"]["pass_at_1"])
    dead = [[step.get("zero_advantage_share", 1.0) for step in outcome["metrics"]] for outcome in arms["without"]]
    return {
        **{f"{level:.0%}": _compared(level, base, arms["without"], arms["with"]) for level in LEVELS},
        "final": {name: [fmean(outcome["held_out"]["pass_at_1"]) for outcome in arms[name]] for name in arms},
        "dead": [fmean(shares) for shares in dead],
    }


def _compared(level: float, base: float, without: Sequence[Outcome], refilled: Sequence[Outcome]) -> dict[str, Any]:
    spent = [[reached(level, base, outcome) for outcome in of_arm] for of_arm in (without, refilled)]
    figures: dict[str, Any] = {}
    for index, figure in enumerate(("steps", "tokens")):
        ours, theirs = ([reach and reach[index] for reach in of_arm] for of_arm in spent)
        logarithms = [math.log(b / a) for a, b in zip(ours, theirs, strict=True) if a and b]
        ratio = over_seeds(logarithms, is_share=False) if len(logarithms) == len(SEEDS) else None
        figures[figure] = {
            "without": ours,
            "with": theirs,
            "ratio": ratio and [math.exp(value) for value in (ratio.value, ratio.lo, ratio.hi)],
        }
    return figures


def reached(level: float, base: float, outcome: Outcome) -> tuple[float, float] | None:
    """The steps and sampled tokens after which pass@1 is `level`, or None."""
    spent = [0.0]  # tokens after each step
    for metrics in outcome["metrics"]:
        prompts = _PROMPTS + metrics.get("refilled", 0)
        spent.append(spent[-1] + prompts * TRAINED * metrics["response_length"])
    curve = [(0, base), *((step, value) for step, value, _ in outcome["curve"])]
    for (before, low), (after, high) in pairwise(curve):
        if low < level <= high:
            part = (level - low) / (high - low)
            return before + part * (after - before), spent[before] + part * (spent[after] - spent[before])
    return None


def tables(figures: dict[str, Any]) -> str:
    """A row for each pass@1: the means over seeds, and the ratios with their intervals."""
    lines = ["| pass@1 | steps | with refill | ratio | tokens | with refill | ratio |", "|" + "---|" * 7]
    for level in (f"{level:.0%}" for level in LEVELS):
        cells = [cell for row in figures[level].values() for cell in _cells(row)]
        lines.append(f"| {level} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(row: dict[str, Any]) -> list[str]:
    values = [[value for value in row[name] if value is not None] for name in ("without", "with")]
    means = [f"{fmean(reached):,.1f}" if len(reached) == len(SEEDS) else "not reached" for reached in values]
    return [*means, "{:.2f} ({:.2f} to {:.2f})".format(*row["ratio"]) if row["ratio"] else ""]
