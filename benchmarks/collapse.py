"""Trains SRT until it collapses, and a control on true labels, with and without the guard.

The learning rate is 1e-3, there is no KL term, and there are 128 questions. The guard's thresholds were chosen on seeds
1 to 6 of these trainings; the other seeds were not used for that.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

from benchmarks.tiny_training import Arm, outcomes
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
    """For each arm, one dictionary per seed: pass@1 on the held-out questions at its peak, at the end, and of the
    checkpoint that is best on the validation set (`restored`), with which a run ends that the guard stops."""
    seeds = {name: GUARDED_SEEDS if name == "srt_guarded" else SEEDS for name in ARMS}
    results = outcomes({(name, seed): arm for name, arm in ARMS.items() for seed in seeds[name]})
    figures: dict[str, list[dict[str, Any]]] = {name: [] for name in ARMS}
    for (name, seed), outcome in results.items():
        final = fmean(outcome["held_out"]["pass_at_1"])
        curve: list[tuple[int, float, float]] = outcome["curve"]
        peak = max((value for _, value, _ in curve), default=final)
        _, restored, _ = max(curve, key=lambda point: point[2], default=(0, None, None))
        course = {"seed": seed, "steps": len(outcome["metrics"]), "peak": peak, "final": final}
        figures[name].append({**course, "lost": peak - final, "restored": restored})
    return figures


def tables(figures: dict[str, Any]) -> str:
    """A row for each arm with its trainings, by seed: pass@1 in percent."""
    lines = ["| pushed | seeds | steps | peak pass@1 | at the end | best by validation |", "|---|---|---|---|---|---|"]
    for arm, name in _TITLES.items():
        trainings = figures[arm]
        steps = [str(training["steps"]) for training in trainings]
        cells = [
            ", ".join("" if training[figure] is None else f"{100 * training[figure]:.1f}" for training in trainings)
            for figure in ("peak", "final", "restored")
        ]
        seeds = f"{trainings[0]['seed']} to {trainings[-1]['seed']}"
        by_seed = ", ".join(steps if len({*steps}) > 1 else steps[:1])
        lines.append(f"| {name} | {seeds} | {by_seed} | {' | '.join(cell.strip(', ') for cell in cells)} |")
    return "\n".join(lines)
