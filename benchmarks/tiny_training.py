"""Trains the tiny model with a method for the benchmarks, and measures it on held-out questions.

Results are stored in `$COEVO_HOME/bench-methods`, so that a benchmark that was interrupted continues. Trainings run in
two processes with one thread each.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from benchmarks.demo_solver import base_checkpoint, train_here
from core.grading.answers import extract_boxed
from core.questions.voting import vote, vote_many
from core.rollouts.strategies import skeleton_clusters
from core.seeds import seed_for
from core.settings.parsing import parse_method
from core.settings.templates import RZERO_SOLVER
from core.settings.training import Training, TrainingSampling
from core.statistics.guard import Guard
from core.types import DEGENERATE
from services.inference.engines.base import Completion, Prompt
from services.inference.engines.embedded import TransformersEngine
from trainers.base import SolverJob, TrainQuestion
from trainers.local.state import Metrics
from trainers.micro.world import make_benchmark, make_problem

SAMPLES = 8  # per held-out question
TRAINED = 8  # rollouts that are trained on, per prompt
FIGURES = ("pass_at_1", "pass_at_k", "maj_at_k", "entropy", "distinct", "distinct_right")
BASE = ("base", 0)
_MICRO = Path(__file__).parents[1] / "trainers" / "micro"
_SAMPLING = TrainingSampling(top_p=1.0, max_tokens=110)
_LABEL_VOTES = 10
_VALIDATION_SEED, _VALIDATION_PER_LEVEL = 777, 50
_Item = tuple[str, str, str]  # id, question, true answer

Outcome = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Arm:
    """One kind of training: a method, the source of its labels, and its settings."""

    method: str
    labels: str = "none"  # "none", "truth", or "base": votes of the base model
    settings: dict[str, Any] = field(default_factory=dict)
    prompts: int = 256
    steps: int = 40
    learning_rate: float = 5e-4
    refill: int = 0  # the most further prompts of a step
    every: int = 0  # steps between held-out evaluations; with 0 there is only one, at the end
    guard: Guard | None = None


def outcomes(arms: Mapping[tuple[str, int], Arm | None]) -> dict[tuple[str, int], Outcome]:
    """Train all `arms`, with (name, seed) as their keys, and return their outcomes. None stands for the base model.

    An outcome has these keys:

    - `held_out`: for each figure, its values for all questions of the benchmark, at the end;
    - `metrics`: the metrics of each step;
    - `curve`: (step, pass@1 on the benchmark, pass@1 on the validation set) during the training.

    That of the base model has `held_out` only.
    """
    folder = Path(os.environ.get("COEVO_HOME", ".coevo")) / "bench-methods"
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers:
        results = workers.map(_load_or_train, [folder] * len(arms), arms.keys(), arms.values())
        return dict(zip(arms, results, strict=True))


def _load_or_train(folder: Path, key: tuple[str, int], arm: Arm | None) -> Outcome:
    """The outcome of one training, which is read from `folder` if it is stored there."""
    name, seed = key
    # A hash of all settings with the method's defaults, so that a stored outcome is one of this arm.
    parts = [] if arm is None else [parse_method(arm.method, arm.settings).model_dump(), repr(arm)]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]
    file = folder / f"{name}-{seed}-{digest}.json"
    if not file.exists():
        outcome = {"held_out": _held_out(_engine(_MICRO / "model"))} if arm is None else _train(arm, seed)
        temporary = file.with_suffix(".part")
        temporary.write_text(json.dumps(outcome))
        temporary.rename(file)
    stored: Outcome = json.loads(file.read_text())
    return stored


def _train(arm: Arm, seed: int) -> Outcome:
    torch.set_num_threads(1)
    disable_progress_bar()
    method = parse_method(arm.method, arm.settings)
    work_dir = Path(tempfile.mkdtemp(prefix="coevo-bench-"))
    metrics: list[Metrics] = []
    curve: list[tuple[int, float, float]] = []
    training = Training(
        steps=arm.steps,
        prompts_per_step=32,
        rollouts_per_prompt=round(TRAINED / method.trained_share),
        learning_rate=arm.learning_rate,
        refill=arm.refill,
        betas=(0.9, 0.99),  # as in deploy/runs/demo.toml, which says why
        micro_batch=64,
        checkpoint_every=arm.every or arm.steps,
        sampling=_SAMPLING,
    )
    job = SolverJob(
        key="bench",
        run_seed=seed,
        start=base_checkpoint(_MICRO / "model"),
        training=training,
        reward=method,
        questions=_questions(arm, seed),
        work_dir=work_dir,
        guard=arm.guard,
    )

    def report(figures: Metrics) -> None:
        previous_step = int(figures["step"]) - 1  # the trainer saves a step after it reports it
        if arm.every and previous_step and previous_step % arm.every == 0:
            curve.append((previous_step, *_accuracies(_engine(work_dir / f"step_{previous_step}"))))
        metrics.append(figures)

    train_here(job, report)
    final = _engine(work_dir / "final")
    held_out = _held_out(final)
    if arm.every:
        curve.append((len(metrics), *_accuracies(final)))
    shutil.rmtree(work_dir)
    return {"held_out": held_out, "metrics": metrics, "curve": curve}


def _questions(arm: Arm, seed: int) -> tuple[TrainQuestion, ...]:
    """The arm's questions with their labels. Questions on which the base model's vote gives no label are left out."""
    rng = random.Random(seed_for(seed, "prompts"))
    problems = [make_problem(rng) for _ in range(arm.prompts)]
    truths = [str(problem.answer) for problem in problems]
    labels: Sequence[str | None] = truths if arm.labels == "truth" else [None] * len(problems)
    if arm.labels == "base":
        prompts = [
            _prompt(problem.text, seed_for(seed, "label", index), _LABEL_VOTES)
            for index, problem in enumerate(problems)
        ]
        groups = _engine(_MICRO / "model").generate(prompts)
        answers = [[extract_boxed(completion.text) for completion in group] for group in groups]
        labels = [label.answer for label in vote_many(answers, None)]
    return tuple(
        TrainQuestion(f"{index:04d}", problem.text, label, truth)
        for index, (problem, label, truth) in enumerate(zip(problems, labels, truths, strict=True))
        if label is not None or arm.labels == "none"
    )


def _engine(folder: Path) -> TransformersEngine:
    torch.set_num_threads(1)
    disable_progress_bar()
    return TransformersEngine(folder)


def _prompt(question: str, seed: int, n: int) -> Prompt:
    return Prompt(tuple(RZERO_SOLVER.messages(question)), seed, n, _SAMPLING)


def _sample(engine: TransformersEngine, benchmark: list[_Item]) -> list[tuple[str, list[Completion]]]:
    """The true answer and the completions of each benchmark question. All models sample with the same seeds."""
    prompts = [_prompt(text, seed_for(0, "held out", item_id), SAMPLES) for item_id, text, _ in benchmark]
    return [(answer, group) for (_, _, answer), group in zip(benchmark, engine.generate(prompts), strict=True)]


def _benchmark() -> list[_Item]:
    lines = (_MICRO / "benchmark.jsonl").read_text(encoding="utf-8").splitlines()
    return [(row["id"], row["problem"], row["answer"]) for row in map(json.loads, lines)]


def _accuracies(engine: TransformersEngine) -> tuple[float, float]:
    """pass@1 on the benchmark, and on the validation set: up to 300 questions that are not in the benchmark, for the
    choice of the best checkpoint."""
    benchmark = _benchmark()
    held_out = {text for _, text, _ in benchmark}
    others = [p for p in make_benchmark(_VALIDATION_SEED, _VALIDATION_PER_LEVEL) if p.text not in held_out]
    validation = [(f"micro-validation/{index:04d}", p.text, str(p.answer)) for index, p in enumerate(others)]
    return _pass_at_1(engine, benchmark), _pass_at_1(engine, validation)


def _pass_at_1(engine: TransformersEngine, benchmark: list[_Item]) -> float:
    right = [
        extract_boxed(completion.text) == truth for truth, group in _sample(engine, benchmark) for completion in group
    ]
    return sum(right) / len(right)


def _held_out(engine: TransformersEngine) -> dict[str, list[float]]:
    """For each figure, its values for all questions of the benchmark."""
    figures: dict[str, list[float]] = {name: [] for name in FIGURES}
    for truth, group in _sample(engine, _benchmark()):
        answers = [extract_boxed(completion.text) for completion in group]
        right = [answer == truth for answer in answers]
        strategies = skeleton_clusters([completion.text for completion in group])
        figures["pass_at_1"].append(sum(right) / len(right))
        figures["pass_at_k"].append(float(any(right)))
        figures["maj_at_k"].append(float(vote(answers, None).answer == truth))
        figures["entropy"].append(sum(completion.mean_entropy for completion in group) / len(group))
        figures["distinct"].append(float(len({*strategies} - {DEGENERATE})))
        right_strategies = {strategy for strategy, is_right in zip(strategies, right, strict=True) if is_right}
        figures["distinct_right"].append(float(len(right_strategies - {DEGENERATE})))
    return figures
