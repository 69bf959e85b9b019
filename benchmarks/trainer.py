"""The embedded trainer against TRL's GRPOTrainer: tokens sampled a second, memory, and where a step's time goes.

Both train the demo's Solver: the same model, questions, prompts and rollouts a step, micro batch, sampling, KL and
lengths, on one thread each, in processes of their own, one after the other and again. TRL is installed with the
development requirements. `python -m benchmarks.trainer ours|trl STEPS` is one of these processes.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from transformers.utils.logging import disable_progress_bar

from core.grading.answers import extract_boxed
from core.grading.grader import Grader
from core.questions.prompts import solver_messages
from core.settings.parsing import load_config
from core.settings.training import Solver
from core.types import Checkpoint
from orchestrator.installation.home import MICRO_MODEL, PRESETS
from trainers.base import SolverJob, TrainQuestion
from trainers.local.loop import train
from trainers.local.ranks import Ranks
from trainers.local.rewards import make_reward
from trainers.local.sharding import logprobs_of
from trainers.local.state import Metrics
from trainers.micro.world import make_benchmark

_STEPS, _TURNS = 6, 2  # the first step of a process is left out
_QUESTIONS = 240


def run() -> dict[str, Any]:
    """{ratio, shares, tokens_per_s, memory_mb}: medians over all steps; `ratio` is ours to TRL's, the shares are of our
    step, memory is a process's at most."""
    turns = [{who: _in_its_own_process(who) for who in ("ours", "trl")} for _ in range(_TURNS)]
    rates = {who: [rate for turn in turns for rate in turn[who]["tokens_per_s"]] for who in ("ours", "trl")}
    speed = {who: statistics.median(of_steps) for who, of_steps in rates.items()}
    shares = [turn["ours"]["shares"] for turn in turns]
    return {
        "ratio": round(speed["ours"] / speed["trl"], 2),
        "shares": {part: round(statistics.mean(turn[part] for turn in shares), 4) for part in shares[0]},
        "tokens_per_s": {who: round(median) for who, median in speed.items()},
        "memory_mb": {who: max(turn[who]["memory_mb"] for turn in turns) for who in ("ours", "trl")},
        "steps": len(rates["ours"]),
    }


def _in_its_own_process(who: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.trainer", who, str(_STEPS)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main(who: str, steps: int) -> None:
    torch.set_num_threads(1)
    disable_progress_bar()
    solver = load_config(PRESETS / "demo.toml").solver
    training = solver.training.model_copy(update={"steps": steps, "checkpoint_every": steps, "workers": 1})
    solver = solver.model_copy(update={"training": training})
    problems = make_benchmark(seed=1, per_level=_QUESTIONS // 6)
    questions = [TrainQuestion(f"q{i}", p.text, str(p.answer)) for i, p in enumerate(problems)]
    figures = (_ours if who == "ours" else _trl)(solver, questions)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**figures, "memory_mb": round(peak)}))


def _ours(solver: Solver, questions: list[TrainQuestion]) -> dict[str, Any]:
    ends, metrics, passes = list[float](), list[Metrics](), list[float]()

    def report(step: Metrics) -> None:
        ends.append(time.perf_counter())
        metrics.append(step)
        passes.append(0.0)

    with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder, Grader() as grader, _timed(passes):
        job = SolverJob(
            key="1/train_solver",
            run_seed=1,
            start=Checkpoint("bench/base/0", "bench", "base", 0, 0, str(MICRO_MODEL), "0" * 64, None),
            training=solver.training,
            reward=solver.reward,
            questions=tuple(questions),
            work_dir=Path(folder),
        )
        reward = make_reward(job, Ranks(), grader)
        train(job, reward, ranks=Ranks(), device="cpu", report=report, stopped=lambda: False)
    seconds = [end - begin for begin, end in pairwise(ends)]
    rollouts = solver.training.prompts_per_step * solver.rollouts
    tokens = [step["response_length"] * rollouts for step in metrics[1:]]
    parts = {
        "sampling": sum(step["sample_seconds"] for step in metrics[1:]),
        "forward_backward": sum(passes[1:-1]),
        "reward": sum(step["reward_seconds"] for step in metrics[1:]),
    }
    parts["other"] = sum(seconds) - sum(parts.values())
    return {
        "tokens_per_s": [count / took for count, took in zip(tokens, seconds, strict=True)],
        "shares": {part: spent / sum(seconds) for part, spent in parts.items()},
    }


@contextmanager
def _timed(passes: list[float]) -> Iterator[None]:
    """Add what forward and backward passes take to the last of `passes`, which has one number a step."""
    passes.append(0.0)

    def noted(work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return work(*arguments, **options)
            finally:
                passes[-1] += time.perf_counter() - began

        return timed

    with (
        patch("trainers.local.update.logprobs_of", noted(logprobs_of)),
        patch.object(torch.Tensor, "backward", noted(torch.Tensor.backward)),
    ):
        yield


def _trl(solver: Solver, questions: list[TrainQuestion]) -> dict[str, Any]:
    trl: Any = import_module("trl")
    datasets: Any = import_module("datasets")
    training, objective, size = solver.training, solver.reward, solver.rollouts
    rollouts, counted = training.prompts_per_step * size, list[int]()

    def right(completions: Any, truth: Any, completion_ids: Any, **_: Any) -> list[float]:
        counted.append(sum(map(len, completion_ids)))
        answers = [extract_boxed(completion[0]["content"]) for completion in completions]
        return [float(answer == expected) for answer, expected in zip(answers, truth, strict=True)]

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.times = list[float]()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.times.append(time.perf_counter())

    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder:
        arguments = trl.GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            max_steps=training.steps,
            per_device_train_batch_size=training.micro_batch,
            gradient_accumulation_steps=rollouts // training.micro_batch,
            num_generations=size,
            max_completion_length=training.sampling.max_tokens,
            temperature=training.sampling.temperature,
            top_p=training.sampling.top_p,
            beta=objective.kl_coefficient,
            loss_type="bnpo",
            learning_rate=training.learning_rate,
            weight_decay=training.weight_decay,
            max_grad_norm=training.max_grad_norm,
            lr_scheduler_type="constant",
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        rows = [{"prompt": solver_messages(q.text), "truth": q.label} for q in questions]
        trainer = trl.GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(MICRO_MODEL, dtype=torch.float32),
            reward_funcs=right,
            args=arguments,
            train_dataset=datasets.Dataset.from_list(rows),
            processing_class=AutoTokenizer.from_pretrained(MICRO_MODEL, padding_side="left"),
            callbacks=[clock],
        )
        trainer.train()
    seconds = [end - begin for begin, end in pairwise(clock.times)]
    return {"tokens_per_s": [count / took for count, took in zip(counted[1:], seconds, strict=True)]}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
