"""The Solver's methods on the tiny world: `coevo bench methods`.

Each is trained from the same base model on the same prompts with the same seeds, and every figure is over the held-out
benchmark. Of a prompt's rollouts eight are trained on whatever the method: one that trains on half of its votes gets
sixteen. Learning rate, steps and prompts are the tiny world's, and the same for all; all else is the method's own
paper's. `coevo bench collapse`, SRT pushed until it collapses, is part of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from benchmarks import collapse
from benchmarks.tiny_training import BASE, FIGURES, Arm, Outcome, outcomes
from core.statistics.estimates import Estimate, mean, paired_difference, share

SEEDS = (1, 2, 3)

ARMS: dict[str, Arm] = {
    "rzero": Arm("rzero", "base"),
    "ttrl": Arm("ttrl"),
    "srt": Arm("srt"),
    "srt_offline": Arm("srt", "base", {"labels": "offline"}),
    "evol_rl": Arm("evol_rl"),
    "scrl": Arm("scrl"),
    "poly_epo": Arm("poly_epo", "truth"),
    "pass_at_n": Arm("pass_at_n", "truth"),
    "grpo": Arm("grpo", "truth"),
    "grpo_div": Arm("grpo_div", "truth"),
    "rloo": Arm("rloo", "truth"),
    "supervised": Arm("supervised", "truth"),
}
# claim -> (figure, the one that should be higher, the other)
CLAIMS: dict[str, tuple[str, str, str]] = {
    "EVOL-RL keeps pass@8 above TTRL's": ("pass_at_k", "evol_rl", "ttrl"),
    "EVOL-RL keeps entropy above TTRL's": ("entropy", "evol_rl", "ttrl"),
    "Poly-EPO finds more right strategies than GRPO": ("distinct_right", "poly_epo", "grpo"),
    "Poly-EPO keeps pass@8 above GRPO's": ("pass_at_k", "poly_epo", "grpo"),
    "labels made once hold pass@1 up against online ones": ("pass_at_1", "srt_offline", "srt"),
}


def run() -> dict[str, Any]:
    """`{"base", "methods", "claims", "pushed"}`; every figure with its interval, its n and its values by seed."""
    done = outcomes({BASE: None} | {(name, seed): arm for name, arm in ARMS.items() for seed in SEEDS})
    by_arm = {name: [done[name, seed] for seed in SEEDS] for name in ARMS}
    return {
        "seeds": list(SEEDS),
        "base": _figures([done[BASE]]),
        "methods": {name: {**_figures(by_arm[name]), **_labels(by_arm[name])} for name in ARMS},
        "claims": {claim: _claim(by_arm, *what) for claim, what in CLAIMS.items()}
        | {"SCRL's positive labels are more accurate than TTRL's majority": _label_claim(by_arm)},
        "pushed": collapse.run(),
    }


def _figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {name: _figure([outcome["held_out"][name] for outcome in outcomes]) for name in FIGURES}


def _figure(by_seed: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The mean over questions of the mean over seeds; the interval is over questions, the seeds stand beside it."""
    return _estimate(mean(_over_seeds(by_seed)), [sum(values) / len(values) for values in by_seed])


def _over_seeds(by_seed: Sequence[Sequence[float]]) -> list[float]:
    return [sum(values) / len(values) for values in zip(*by_seed, strict=True)]


def _estimate(estimate: Estimate | None, per_seed: Sequence[float]) -> dict[str, Any]:
    if estimate is None:
        return {"value": None, "ci95": None, "n": 0, "per_seed": list(per_seed)}
    return {**estimate.as_json(), "per_seed": list(per_seed)}


def _claim(by_arm: dict[str, list[Outcome]], figure: str, higher: str, lower: str) -> dict[str, Any]:
    """The paired difference over the questions, and by seed."""
    after, before = ([outcome["held_out"][figure] for outcome in by_arm[name]] for name in (higher, lower))
    per_seed = [sum(a) / len(a) - sum(b) / len(b) for a, b in zip(after, before, strict=True)]
    return _estimate(paired_difference(_over_seeds(before), _over_seeds(after)), per_seed)


def _counted_labels(outcome: Outcome) -> tuple[int, int, int]:
    """Right labels, labels, questions asked, over a whole training of 32 questions a step."""
    right = labelled = asked = 0
    for figures in outcome["metrics"]:
        given = round(32 * figures.get("labelled_share", 0.0))
        right, labelled, asked = right + round(given * figures.get("label_accuracy", 0.0)), labelled + given, asked + 32
    return right, labelled, asked


def _labels(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    counted = [_counted_labels(outcome) for outcome in outcomes]
    right, labelled, asked = (sum(column) for column in zip(*counted, strict=True))
    return {
        "label_accuracy": _estimate(share(right, labelled), [r / n for r, n, _ in counted if n]),
        "labelled": _estimate(share(labelled, asked), [n / all_of for _, n, all_of in counted]),
    }


def _label_claim(by_arm: dict[str, list[Outcome]]) -> dict[str, Any]:
    """SCRL's less TTRL's label accuracy: they label with policies of their own, so the interval is over the seeds."""
    scrl, ttrl = ([r / n for r, n, _ in map(_counted_labels, by_arm[name])] for name in ("scrl", "ttrl"))
    differences = [a - b for a, b in zip(scrl, ttrl, strict=True)]
    return _estimate(mean(differences), differences)


if __name__ == "__main__":
    print(json.dumps(run()))
