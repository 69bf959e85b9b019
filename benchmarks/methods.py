"""Compares the Solver's methods on the tiny world.

Each method trains the same base model on the same prompts with the same seeds, and every figure is measured on the
held-out benchmark. Every method trains on eight rollouts per prompt, so a method that trains on half of its votes gets
sixteen. Learning rate, betas, steps and prompts are chosen for the tiny world and equal for all methods; all other
settings are those of the method's paper. The benchmark `collapse`, which trains SRT until it collapses, is a
part of this benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks import collapse
from benchmarks.tiny_training import BASE, FIGURES, Arm, Outcome, outcomes
from core.statistics.estimates import Estimate, mean, share
from core.statistics.seeds import compare_seeds

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
# claim -> (figure, method that should have the higher value, the other method)
CLAIMS: dict[str, tuple[str, str, str]] = {
    "EVOL-RL keeps pass@8 above TTRL's": ("pass_at_k", "evol_rl", "ttrl"),
    "EVOL-RL keeps entropy above TTRL's": ("entropy", "evol_rl", "ttrl"),
    "Poly-EPO finds more right strategies than GRPO": ("distinct_right", "poly_epo", "grpo"),
    "Poly-EPO keeps pass@8 above GRPO's": ("pass_at_k", "poly_epo", "grpo"),
    "labels made once hold pass@1 up against online ones": ("pass_at_1", "srt_offline", "srt"),
}


def run() -> dict[str, Any]:
    """`{"seeds", "base", "methods", "claims", "pushed"}`; figures have an interval, an n and their values by seed."""
    results = outcomes({BASE: None} | {(name, seed): arm for name, arm in ARMS.items() for seed in SEEDS})
    by_arm = {name: [results[name, seed] for seed in SEEDS] for name in ARMS}
    return {
        "seeds": list(SEEDS),
        "base": _figures([results[BASE]]),
        "methods": {name: {**_figures(by_arm[name]), **_labels(by_arm[name])} for name in ARMS},
        "claims": {claim: _claim(by_arm, *comparison) for claim, comparison in CLAIMS.items()}
        | {
            # Each labels with its own policy, so they are not paired by question.
            "SCRL's positive labels are more accurate than TTRL's majority": {
                **_over_pairs(_label_accuracies(by_arm["ttrl"]), _label_accuracies(by_arm["scrl"])),
                "questions_ci95": None,
            }
        },
        "pushed": collapse.run(),
    }


def _figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """For each figure the mean over questions of the mean over seeds, with an interval over questions, and the means by
    seed."""
    by_name = {name: [outcome["held_out"][name] for outcome in outcomes] for name in FIGURES}
    return {
        name: _estimate(mean(_over_seeds(by_seed)), [sum(values) / len(values) for values in by_seed])
        for name, by_seed in by_name.items()
    }


def _over_seeds(by_seed: Sequence[Sequence[float]]) -> list[float]:
    return [sum(values) / len(values) for values in zip(*by_seed, strict=True)]


def _estimate(estimate: Estimate | None, per_seed: Sequence[float]) -> dict[str, Any]:
    if estimate is None:
        return {"value": None, "ci95": None, "n": 0, "per_seed": list(per_seed)}
    return {**estimate.as_json(), "per_seed": list(per_seed)}


def _claim(by_arm: dict[str, list[Outcome]], figure: str, higher: str, lower: str) -> dict[str, Any]:
    """The difference over seeds, its interval over the choice of questions, and the differences by seed."""
    high, low = ([outcome["held_out"][figure] for outcome in by_arm[name]] for name in (higher, lower))
    over_questions = mean([b - a for a, b in zip(_over_seeds(low), _over_seeds(high), strict=True)])
    means = [[sum(values) / len(values) for values in of_seeds] for of_seeds in (low, high)]
    return {**_over_pairs(*means), "questions_ci95": over_questions and [over_questions.lo, over_questions.hi]}


def _over_pairs(low: Sequence[float], high: Sequence[float]) -> dict[str, Any]:
    """How much higher the second figures are, with the interval of the paired t test over seeds."""
    test = compare_seeds([*zip(SEEDS, low, strict=True)], [*zip(SEEDS, high, strict=True)])
    return _estimate(test.estimate if test else None, [b - a for a, b in zip(low, high, strict=True)])


def _count_labels(outcome: Outcome) -> tuple[int, int, int]:
    """The numbers of right labels, of labels, and of prompts, over a whole training with 32 prompts per step."""
    right = labelled = prompts = 0
    for figures in outcome["metrics"]:
        step_labels = round(32 * figures.get("labelled_share", 0.0))
        right += round(step_labels * figures.get("label_accuracy", 0.0))
        labelled += step_labels
        prompts += 32
    return right, labelled, prompts


def _labels(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    counts = [_count_labels(outcome) for outcome in outcomes]
    right, labelled, prompts = (sum(column) for column in zip(*counts, strict=True))
    return {
        "label_accuracy": _estimate(
            share(right, labelled),
            [seed_right / seed_labelled for seed_right, seed_labelled, _ in counts if seed_labelled],
        ),
        "labelled": _estimate(
            share(labelled, prompts), [seed_labelled / seed_prompts for _, seed_labelled, seed_prompts in counts]
        ),
    }


def _label_accuracies(outcomes: Sequence[Outcome]) -> list[float]:
    return [right / labelled for right, labelled, _ in map(_count_labels, outcomes)]


def tables(figures: dict[str, Any]) -> str:
    """The tables of docs/methods.md: the methods, the claims, and the pushed trainings."""
    labels_of_all = max(row["label_accuracy"]["n"] for row in figures["methods"].values())
    methods = [
        "| method | pass@1 | pass@8 | maj@8 | entropy, nats | strategies of 8 | right ones | labels right, "
        f"n = {labels_of_all:,} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in {"base": figures["base"], **figures["methods"]}.items():
        cells = [_percent(row[key]) for key in ("pass_at_1", "pass_at_k", "maj_at_k")]
        cells += [_number(row["entropy"], 3), _number(row["distinct"], 2), _number(row["distinct_right"], 2), ""]
        if labels := row.get("label_accuracy"):
            share_labelled = f", n = {labels['n']:,}, {100 * row['labelled']['value']:.0f}% labelled"
            cells[-1] = _percent(labels) + ("" if labels["n"] == labels_of_all else share_labelled)
        methods.append(f"| {name} | {' | '.join(cells)} |")
    claims = ["| claim | difference, over seeds | by seed | over the choice of questions | |", "|---|---|---|---|---|"]
    for claim, row in figures["claims"].items():
        # The interval over the choice of questions says nothing about another training.
        low, high = row["ci95"]
        verdict = "reproduces" if low > 0 else "the other way round" if high < 0 else "not told apart"
        seeds = ", ".join(f"{value:+.3f}" for value in row["per_seed"])
        over_questions = row["questions_ci95"]
        questions = "" if over_questions is None else "[{:.3f}, {:.3f}]".format(*over_questions)
        claims.append(f"| {claim} | {_number(row, 3)} | {seeds} | {questions} | {verdict} |")
    return "\n\n".join(["\n".join(methods), "\n".join(claims), collapse.tables(figures["pushed"])])


def _percent(figure: dict[str, Any]) -> str:
    low, high = figure["ci95"]
    return f"{100 * figure['value']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def _number(figure: dict[str, Any], digits: int) -> str:
    low, high = figure["ci95"]
    return f"{figure['value']:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
