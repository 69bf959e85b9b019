"""Trains SRT until it collapses, and a control on true labels, with and without the guard.

The learning rate is 1e-3, there is no KL term, and there are 128 questions. The guard's thresholds were chosen on seeds
1 to 6 of these trainings; the other seeds were not used for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.tiny_training import Arm, Outcome, outcomes
from core.statistics.guard import Guard

SEEDS, GUARDED_SEEDS = (1, 2, 3), tuple(range(1, 11))
_PUSHED: dict[str, Any] = {"prompts": 128, "steps": 60, "learning_rate": 1e-3}
_FREE: dict[str, Any] = {"kl_coefficient": 0.0}
ARMS: dict[str, Arm] = {
    "srt_pushed": Arm("srt", "none", _FREE, **_PUSHED, every=4),
    "truth_pushed": Arm("rloo", "truth", _FREE, **_PUSHED, every=4),
    "srt_guarded": Arm("srt", "none", _FREE, **_PUSHED, every=1, guard=Guard(actions={"hacking": "stop"})),
    "truth_guarded": Arm("rloo", "truth", _FREE, **_PUSHED, guard=Guard(actions={"hacking": "stop"})),
}
_TITLES = {
    "srt_pushed": "SRT",
    "truth_pushed": "RLOO, true labels",
    "srt_guarded": "SRT, guard stops it",
    "truth_guarded": "RLOO, true labels, guard on",
}


def run() -> dict[str, Any]:
    """The results of each arm's trainings, one per seed: see `_summary`."""
    results = outcomes({(name, seed): arm for name, arm in ARMS.items() for seed in _seeds(name)})
    return {name: [_summary(seed, results[name, seed]) for seed in _seeds(name)] for name in ARMS}


def _seeds(name: str) -> tuple[int, ...]:
    return GUARDED_SEEDS if name == "srt_guarded" else SEEDS


def _summary(seed: int, outcome: Outcome) -> dict[str, Any]:
    """The course of a training.

    It has the held-out pass@1 by step, at its peak, and at the end. `restored` is that of the checkpoint which is best
    on the validation set; a run that the guard stops ends with this checkpoint.
    """
    final = sum(outcome["held_out"]["pass_at_1"]) / len(outcome["held_out"]["pass_at_1"])
    curve: list[tuple[int, float, float]] = outcome["curve"]
    peak = max((value for _, value, _ in curve), default=final)
    _, restored, _ = max(curve, key=lambda point: point[2], default=(0, None, None))
    return {
        "seed": seed,
        "steps": len(outcome["metrics"]),
        "curve": [(step, value) for step, value, _ in curve],
        "peak": peak,
        "final": final,
        "lost": peak - final,
        "restored": restored,
        **{name: _column(outcome["metrics"], name) for name in ("majority_share", "kl", "label_accuracy")},
    }


def _column(metrics: list[Mapping[str, float]], name: str) -> list[float | None]:
    return [figures.get(name) for figures in metrics]


def tables(figures: dict[str, Any]) -> str:
    """A row for each training: pass@1 in percent."""
    lines = [
        "| pushed | seed | steps | peak pass@1 | at the end | lost | best by validation |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm, name in _TITLES.items():
        for training in figures[arm]:
            values = [training[figure] for figure in ("peak", "final", "lost", "restored")]
            cells = ["" if value is None else f"{100 * value:.1f}" for value in values]
            lines.append(f"| {name} | {training['seed']} | {training['steps']} | {' | '.join(cells)} |")
    return "\n".join(lines)
