"""The Solver's methods on the tiny world: `coevo bench methods`.

Each is trained from the same base model on the same prompts with the same seeds, and every figure is over the held-out
benchmark. Then SRT pushed until it collapses, its control with true labels, and the same with the guard on. Trainings
run in two processes; what is done is kept in `$COEVO_HOME/bench-methods`, so a campaign that was cut off goes on.

Of a prompt's rollouts eight are trained on whatever the method: one that trains on half of its votes gets sixteen.
Learning rate, steps and prompts are the tiny world's, and the same for all; all else is the method's own paper's.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from core.answers import extract_boxed
from core.config import Sampling, Training, parse_method
from core.drift import Estimate, mean_interval, paired_difference, share
from core.grading import Grader
from core.guard import Guard
from core.methods import Method
from core.prompts import solver_messages
from core.seeds import seed_for
from core.strategies import DEGENERATE, skeleton_clusters
from core.types import Checkpoint
from core.voting import vote, vote_many
from services.inference.engine import Completion, Prompt
from services.inference.transformers_engine import TransformersEngine
from trainers.base import TrainJob, TrainQuestion
from trainers.local.checkpoints import Metrics
from trainers.local.loop import train
from trainers.local.ranks import Ranks
from trainers.local.rewards import make_reward
from trainers.micro.world import make_problem

SEEDS = (1, 2, 3)
SAMPLES = 8  # held-out, a question
TRAINED = 8  # rollouts a prompt
MICRO = Path(__file__).parents[1] / "trainers" / "micro"
_SAMPLING = Sampling(top_p=1.0, max_tokens=110)
_LABEL_VOTES = 10


@dataclass(frozen=True, slots=True)
class Arm:
    """One training: a method, where its questions' labels come from, and how hard it is pushed."""

    method: str
    labels: str = "none"  # "truth", or "base": the base model's votes
    settings: dict[str, Any] = field(default_factory=dict)
    prompts: int = 256
    steps: int = 40
    learning_rate: float = 5e-4
    every: int = 0  # steps between held-out evaluations; 0: at the end only
    guard: Guard | None = None


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
_PUSHED: dict[str, Any] = {"prompts": 128, "steps": 60, "learning_rate": 1e-3, "every": 4}
PUSHED: dict[str, Arm] = {
    "srt_pushed": Arm("srt", "none", {"kl_coefficient": 0.0}, **_PUSHED),
    "truth_pushed": Arm("rloo", "truth", {"kl_coefficient": 0.0}, **_PUSHED),
    "srt_guarded": Arm("srt", "none", {"kl_coefficient": 0.0}, **_PUSHED, guard=Guard(hacking="stop")),
}
# claim -> (figure, the one that should be higher, the other)
CLAIMS: dict[str, tuple[str, str, str]] = {
    "EVOL-RL keeps pass@8 above TTRL's": ("pass_at_k", "evol_rl", "ttrl"),
    "EVOL-RL keeps entropy above TTRL's": ("entropy", "evol_rl", "ttrl"),
    "Poly-EPO finds more right strategies than GRPO": ("distinct_right", "poly_epo", "grpo"),
    "Poly-EPO keeps pass@8 above GRPO's": ("pass_at_k", "poly_epo", "grpo"),
    "labels made once hold pass@1 up against online ones": ("pass_at_1", "srt_offline", "srt"),
}
FIGURES = ("pass_at_1", "pass_at_k", "maj_at_k", "entropy", "distinct", "distinct_right")


def run() -> dict[str, Any]:
    """`{"base", "methods", "claims", "pushed"}`; every figure with its interval, its n and its values by seed."""
    folder = Path(os.environ.get("COEVO_HOME", ".coevo")) / "bench-methods"
    folder.mkdir(parents=True, exist_ok=True)
    names = [("base", 0), *((name, seed) for name in (*ARMS, *PUSHED) for seed in SEEDS)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers:
        done = dict(zip(names, workers.map(_kept, [folder] * len(names), *zip(*names, strict=True)), strict=True))
    by_arm = {name: [done[name, seed] for seed in SEEDS] for name in (*ARMS, *PUSHED)}
    return {
        "seeds": list(SEEDS),
        "base": _figures([done["base", 0]]),
        "methods": {name: {**_figures(by_arm[name]), **_labels(by_arm[name])} for name in ARMS},
        "claims": {claim: _claim(by_arm, *what) for claim, what in CLAIMS.items()}
        | {"SCRL's positive labels are more accurate than TTRL's majority": _label_claim(by_arm)},
        "pushed": {name: [_pushed(each) for each in by_arm[name]] for name in PUSHED},
    }


def _kept(folder: Path, name: str, seed: int) -> dict[str, Any]:
    """The outcome of one training, from the folder where it is there already."""
    file = folder / f"{name}-{seed}.json"
    if not file.exists():
        outcome = _base() if name == "base" else _train({**ARMS, **PUSHED}[name], seed)
        temporary = file.with_suffix(".part")
        temporary.write_text(json.dumps(outcome))
        temporary.rename(file)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def _base() -> dict[str, Any]:
    return {"held_out": _held_out(_engine(MICRO / "model"))}


def _train(arm: Arm, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    disable_progress_bar()
    method = parse_method(arm.method, arm.settings)
    work = Path(tempfile.mkdtemp(prefix="coevo-bench-"))
    metrics: list[Metrics] = []
    curve: list[tuple[int, float]] = []
    job = _job(arm, method, seed, work)

    def report(figures: Metrics) -> None:
        before = int(figures["step"]) - 1  # its folder is there by now
        if arm.every and before and before % arm.every == 0:
            curve.append((before, _pass_at_1(_engine(work / f"step_{before}"))))
        metrics.append(figures)

    with Grader() as grader:
        reward = make_reward(job, Ranks(), grader)
        train(job, reward, ranks=Ranks(), device="cpu", report=report, stopped=lambda: False)
    held_out = _held_out(_engine(work / "final"))
    shutil.rmtree(work)
    return {"held_out": held_out, "metrics": metrics, "curve": curve}


def _job(arm: Arm, method: Method, seed: int, work: Path) -> TrainJob:
    training = Training(
        steps=arm.steps,
        prompts_per_step=32,
        rollouts_per_prompt=round(TRAINED / method.trained_share),
        learning_rate=arm.learning_rate,
        micro_batch=64,
        checkpoint_every=arm.every or arm.steps,
        sampling=_SAMPLING,
    )
    start = Checkpoint("base", "bench", "base", 0, 0, str(MICRO / "model"), "0" * 64, None)
    questions = _questions(arm, seed)
    return TrainJob("bench", "solver", seed, start, training, method, questions, None, work, guard=arm.guard)


def _questions(arm: Arm, seed: int) -> tuple[TrainQuestion, ...]:
    rng = random.Random(seed_for(seed, "prompts"))
    problems = [make_problem(rng) for _ in range(arm.prompts)]
    truths = [str(problem.answer) for problem in problems]
    labels: Sequence[str | None] = truths if arm.labels == "truth" else [None] * len(problems)
    if arm.labels == "base":
        prompts = [_prompt(p.text, seed_for(seed, "label", i), _LABEL_VOTES) for i, p in enumerate(problems)]
        groups = _engine(MICRO / "model").generate(prompts)
        labels = [label.answer for label in vote_many([[extract_boxed(c.text) for c in g] for g in groups], None)]
    return tuple(
        TrainQuestion(f"{i:04d}", problem.text, label, truth)
        for i, (problem, label, truth) in enumerate(zip(problems, labels, truths, strict=True))
        if label is not None or arm.labels == "none"
    )


def _engine(folder: Path) -> TransformersEngine:
    torch.set_num_threads(1)
    disable_progress_bar()
    return TransformersEngine(folder)


def _prompt(question: str, seed: int, n: int) -> Prompt:
    return Prompt(tuple(solver_messages(question)), seed, n, _SAMPLING)


def _sampled(engine: TransformersEngine, n: int) -> list[tuple[str, list[Completion]]]:
    """The benchmark's true answers and the completions, drawn alike for every model."""
    items = [json.loads(line) for line in (MICRO / "benchmark.jsonl").read_text().splitlines()]
    prompts = [_prompt(item["problem"], seed_for(0, "held out", item["id"]), n) for item in items]
    return [(item["answer"], group) for item, group in zip(items, engine.generate(prompts), strict=True)]


def _pass_at_1(engine: TransformersEngine) -> float:
    sampled = _sampled(engine, 2)
    return sum(extract_boxed(c.text) == truth for truth, group in sampled for c in group) / (2 * len(sampled))


def _held_out(engine: TransformersEngine) -> dict[str, list[float]]:
    """Each figure for each question."""
    found: dict[str, list[float]] = {name: [] for name in FIGURES}
    for truth, group in _sampled(engine, SAMPLES):
        answers = [extract_boxed(completion.text) for completion in group]
        right = [answer == truth for answer in answers]
        strategies = skeleton_clusters([completion.text for completion in group])
        found["pass_at_1"].append(sum(right) / len(right))
        found["pass_at_k"].append(float(any(right)))
        found["maj_at_k"].append(float(vote(answers, None).answer == truth))
        found["entropy"].append(sum(completion.mean_entropy for completion in group) / len(group))
        found["distinct"].append(float(len({*strategies} - {DEGENERATE})))
        found["distinct_right"].append(
            float(len({s for s, r in zip(strategies, right, strict=True) if r} - {DEGENERATE}))
        )
    return found


def _figures(outcomes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {name: _figure([each["held_out"][name] for each in outcomes]) for name in FIGURES}


def _figure(by_seed: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The mean over questions of the mean over seeds; the interval is over questions, the seeds stand beside it."""
    return _estimate(mean_interval(_over_seeds(by_seed)), [sum(values) / len(values) for values in by_seed])


def _over_seeds(by_seed: Sequence[Sequence[float]]) -> list[float]:
    return [sum(values) / len(values) for values in zip(*by_seed, strict=True)]


def _estimate(found: Estimate | None, per_seed: Sequence[float]) -> dict[str, Any]:
    if found is None:
        return {"value": None, "ci95": None, "n": 0, "per_seed": list(per_seed)}
    return {"value": found.value, "ci95": [found.lo, found.hi], "n": found.n, "per_seed": list(per_seed)}


def _claim(by_arm: dict[str, list[dict[str, Any]]], figure: str, higher: str, lower: str) -> dict[str, Any]:
    """The paired difference over the questions, and by seed."""
    after, before = ([each["held_out"][figure] for each in by_arm[name]] for name in (higher, lower))
    per_seed = [sum(a) / len(a) - sum(b) / len(b) for a, b in zip(after, before, strict=True)]
    return _estimate(paired_difference(_over_seeds(before), _over_seeds(after)), per_seed)


def _counted_labels(outcome: dict[str, Any]) -> tuple[int, int, int]:
    """Right labels, labels, questions asked, over a whole training of 32 questions a step."""
    right = labelled = asked = 0
    for figures in outcome["metrics"]:
        given = round(32 * figures.get("labelled_share", 0.0))
        right, labelled, asked = right + round(given * figures.get("label_accuracy", 0.0)), labelled + given, asked + 32
    return right, labelled, asked


def _labels(outcomes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    counted = [_counted_labels(outcome) for outcome in outcomes]
    right, labelled, asked = (sum(column) for column in zip(*counted, strict=True))
    return {
        "label_accuracy": _estimate(share(right, labelled), [r / n for r, n, _ in counted if n]),
        "labelled": _estimate(share(labelled, asked), [n / all_of for _, n, all_of in counted]),
    }


def _label_claim(by_arm: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """SCRL's less TTRL's label accuracy: they label with policies of their own, so the interval is over the seeds."""
    scrl, ttrl = ([r / n for r, n, _ in map(_counted_labels, by_arm[name])] for name in ("scrl", "ttrl"))
    differences = [a - b for a, b in zip(scrl, ttrl, strict=True)]
    return _estimate(mean_interval(differences), differences)


def _pushed(outcome: dict[str, Any]) -> dict[str, Any]:
    """What became of a pushed training: held-out pass@1 along the way, its peak, and the end."""
    final = sum(outcome["held_out"]["pass_at_1"]) / len(outcome["held_out"]["pass_at_1"])
    curve = [*outcome["curve"], (len(outcome["metrics"]), final)]
    return {
        "steps": len(outcome["metrics"]),
        "curve": curve,
        "peak": max(value for _, value in curve),
        "final": final,
        "majority_share": [figures["majority_share"] for figures in outcome["metrics"]],
        "kl": [figures["kl"] for figures in outcome["metrics"]],
        "label_accuracy": [figures.get("label_accuracy") for figures in outcome["metrics"]],
    }


if __name__ == "__main__":
    print(json.dumps(run()))
