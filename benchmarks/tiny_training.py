"""One training on the tiny world for the benchmarks: a method, its questions, and held-out figures along the way.

What is done is kept in `$COEVO_HOME/bench-methods`, so a campaign that was cut off goes on. Trainings run in two
processes of one thread each.
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

from core.grading.answers import extract_boxed
from core.grading.grader import Grader
from core.methods import Method
from core.questions.prompts import solver_messages
from core.questions.voting import vote, vote_many
from core.rollouts.strategies import DEGENERATE, skeleton_clusters
from core.seeds import seed_for
from core.settings.parsing import parse_method
from core.settings.training import Sampling, Training
from core.statistics.guard import Guard
from core.types import Checkpoint
from services.inference.engines.base import Completion, Prompt
from services.inference.engines.embedded import TransformersEngine
from trainers.base import SolverJob, TrainQuestion
from trainers.local.loop import train
from trainers.local.ranks import Ranks
from trainers.local.rewards import make_reward
from trainers.local.state import Metrics
from trainers.micro.world import make_benchmark, make_problem

SAMPLES = 8  # held-out, a question
TRAINED = 8  # rollouts a prompt
FIGURES = ("pass_at_1", "pass_at_k", "maj_at_k", "entropy", "distinct", "distinct_right")
BASE = ("base", 0)
_MICRO = Path(__file__).parents[1] / "trainers" / "micro"
_SAMPLING = Sampling(top_p=1.0, max_tokens=110)
_LABEL_VOTES = 10
_VALIDATION_SEED, _VALIDATION_PER_LEVEL = 777, 50
_Item = tuple[str, str, str]  # id, question, true answer

Outcome = dict[str, Any]


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


def outcomes(arms: Mapping[tuple[str, int], Arm | None]) -> dict[tuple[str, int], Outcome]:
    """(name, seed) -> what became of that arm; of None, of the base model as it is.

    An outcome has `held_out`, each figure for each question of the benchmark at the end; `metrics`, a step each; and
    `curve`, (step, pass@1 on the benchmark, pass@1 on the validation set) along the way.
    """
    folder = Path(os.environ.get("COEVO_HOME", ".coevo")) / "bench-methods"
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers:
        results = workers.map(_kept, [folder] * len(arms), arms.keys(), arms.values())
        return dict(zip(arms, results, strict=True))


def _kept(folder: Path, key: tuple[str, int], arm: Arm | None) -> Outcome:
    """The outcome of one training, from the folder where it is there already."""
    name, seed = key
    file = folder / f"{name}-{seed}-{_digest(arm)}.json"
    if not file.exists():
        outcome = {"held_out": _held_out(_engine(_MICRO / "model"))} if arm is None else _train(arm, seed)
        temporary = file.with_suffix(".part")
        temporary.write_text(json.dumps(outcome))
        temporary.rename(file)
    kept: Outcome = json.loads(file.read_text())
    return kept


def _digest(arm: Arm | None) -> str:
    """Of all that an arm is made of, its method's defaults too, so that what is kept is what was asked for."""
    parts = [] if arm is None else [parse_method(arm.method, arm.settings).model_dump(), repr(arm)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]


def _train(arm: Arm, seed: int) -> Outcome:
    torch.set_num_threads(1)
    disable_progress_bar()
    method = parse_method(arm.method, arm.settings)
    work = Path(tempfile.mkdtemp(prefix="coevo-bench-"))
    metrics: list[Metrics] = []
    curve: list[tuple[int, float, float]] = []
    job = _job(arm, method, seed, work)

    def report(figures: Metrics) -> None:
        before = int(figures["step"]) - 1  # its folder is there by now
        if arm.every and before and before % arm.every == 0:
            curve.append((before, *_on_the_way(_engine(work / f"step_{before}"))))
        metrics.append(figures)

    with Grader() as grader:
        reward = make_reward(job, Ranks(), grader)
        train(job, reward, ranks=Ranks(), device="cpu", report=report, stopped=lambda: False)
    final = _engine(work / "final")
    held_out = _held_out(final)
    if arm.every:
        curve.append((len(metrics), *_on_the_way(final)))
    shutil.rmtree(work)
    return {"held_out": held_out, "metrics": metrics, "curve": curve}


def _job(arm: Arm, method: Method, seed: int, work: Path) -> SolverJob:
    training = Training(
        steps=arm.steps,
        prompts_per_step=32,
        rollouts_per_prompt=round(TRAINED / method.trained_share),
        learning_rate=arm.learning_rate,
        micro_batch=64,
        checkpoint_every=arm.every or arm.steps,
        sampling=_SAMPLING,
    )
    start = Checkpoint("base", "bench", "base", 0, 0, str(_MICRO / "model"), "0" * 64, None)
    questions = _questions(arm, seed)
    return SolverJob(
        key="bench",
        run_seed=seed,
        start=start,
        training=training,
        reward=method,
        questions=questions,
        work_dir=work,
        guard=arm.guard,
    )


def _questions(arm: Arm, seed: int) -> tuple[TrainQuestion, ...]:
    rng = random.Random(seed_for(seed, "prompts"))
    problems = [make_problem(rng) for _ in range(arm.prompts)]
    truths = [str(problem.answer) for problem in problems]
    labels: Sequence[str | None] = truths if arm.labels == "truth" else [None] * len(problems)
    if arm.labels == "base":
        prompts = [_prompt(p.text, seed_for(seed, "label", i), _LABEL_VOTES) for i, p in enumerate(problems)]
        groups = _engine(_MICRO / "model").generate(prompts)
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


def _sampled(engine: TransformersEngine, benchmark: list[_Item]) -> list[tuple[str, list[Completion]]]:
    """The benchmark's true answers and the completions, drawn alike for every model."""
    prompts = [_prompt(text, seed_for(0, "held out", identity), SAMPLES) for identity, text, _ in benchmark]
    return [(answer, group) for (_, _, answer), group in zip(benchmark, engine.generate(prompts), strict=True)]


def _benchmark() -> list[_Item]:
    lines = (_MICRO / "benchmark.jsonl").read_text(encoding="utf-8").splitlines()
    return [(row["id"], row["problem"], row["answer"]) for row in map(json.loads, lines)]


def _validation() -> list[_Item]:
    """300 questions of their own, to pick a checkpoint by."""
    held_out = {text for _, text, _ in _benchmark()}
    problems = [p for p in make_benchmark(_VALIDATION_SEED, _VALIDATION_PER_LEVEL) if p.text not in held_out]
    return [(f"micro-validation/{i:04d}", p.text, str(p.answer)) for i, p in enumerate(problems)]


def _on_the_way(engine: TransformersEngine) -> tuple[float, float]:
    """pass@1 on the benchmark, and on the validation set."""
    return _pass_at_1(engine, _benchmark()), _pass_at_1(engine, _validation())


def _pass_at_1(engine: TransformersEngine, benchmark: list[_Item]) -> float:
    right = [extract_boxed(c.text) == truth for truth, group in _sampled(engine, benchmark) for c in group]
    return sum(right) / len(right)


def _held_out(engine: TransformersEngine) -> dict[str, list[float]]:
    """Each figure for each question."""
    figures: dict[str, list[float]] = {name: [] for name in FIGURES}
    for truth, group in _sampled(engine, _benchmark()):
        answers = [extract_boxed(completion.text) for completion in group]
        right = [answer == truth for answer in answers]
        strategies = skeleton_clusters([completion.text for completion in group])
        figures["pass_at_1"].append(sum(right) / len(right))
        figures["pass_at_k"].append(float(any(right)))
        figures["maj_at_k"].append(float(vote(answers, None).answer == truth))
        figures["entropy"].append(sum(completion.mean_entropy for completion in group) / len(group))
        figures["distinct"].append(float(len({*strategies} - {DEGENERATE})))
        figures["distinct_right"].append(
            float(len({s for s, r in zip(strategies, right, strict=True) if r} - {DEGENERATE}))
        )
    return figures
