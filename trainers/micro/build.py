"""Builds the tiny base model from generated text only: `coevo micro build FOLDER`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from trainers.micro.pretrain import PretrainConfig, pretrain
from trainers.micro.tokenizer import build_tokenizer
from trainers.micro.world import make_benchmark

BENCHMARK_SEED = 20261122
BENCHMARK_PER_LEVEL = 170
TOKENIZER_SEED = 0


def benchmark_lines() -> list[str]:
    """The held-out benchmark, 170 questions for each of 1 to 6 operations, as JSON lines."""
    problems = make_benchmark(BENCHMARK_SEED, BENCHMARK_PER_LEVEL)
    return [
        json.dumps(
            {
                "id": f"micro/{index:04d}",
                "problem": problem.text,
                "answer": str(problem.answer),
                "level": str(len(problem.operators)),
            }
        )
        for index, problem in enumerate(problems)
    ]


def build(folder: Path, log: Callable[[str], None], config: PretrainConfig | None = None) -> None:
    """Pre-train the model and write it with its tokenizer to `folder`; `log` gets lines about the progress."""
    config = config or PretrainConfig()
    held_out = frozenset(json.loads(line)["problem"] for line in benchmark_lines())
    tokenizer = build_tokenizer(TOKENIZER_SEED)
    started = time.monotonic()

    def report(step: int, loss: float) -> None:
        log(f"step {step} of {config.steps}: loss {loss:.4f}, {time.monotonic() - started:.0f} s")

    model = pretrain(tokenizer, held_out, config, report)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
