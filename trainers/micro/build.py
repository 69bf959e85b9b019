"""Builds a tiny base model from generated text only: `python -m trainers.micro build FOLDER`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from trainers.micro.bases import PretrainConfig, TinyBase
from trainers.micro.pretrain import pretrain
from trainers.micro.tokenizer import build_tokenizer

TOKENIZER_SEED = 0


def benchmark_lines(name: str, base: TinyBase) -> list[str]:
    """The held-out benchmark of a base, as JSON lines."""
    return [
        json.dumps(
            {
                "id": f"{name}/{index:04d}",
                "problem": problem.text,
                "answer": str(problem.answer),
                "level": str(problem.operations),
            }
        )
        for index, problem in enumerate(base.held_out())
    ]


def build(
    folder: Path, log: Callable[[str], None], base: TinyBase, config: PretrainConfig | None = None, device: str = "cpu"
) -> None:
    """Pre-train the model and write it with its tokenizer to `folder`; `log` gets lines about the progress.

    `config` is by default that of the base.
    """
    config = config or base.pretraining
    held_out = frozenset(problem.text for problem in base.held_out())
    tokenizer = build_tokenizer(TOKENIZER_SEED, base.world.family)
    started = time.monotonic()

    def report(step: int, loss: float) -> None:
        log(f"step {step} of {config.steps}: loss {loss:.4f}, {time.monotonic() - started:.0f} s")

    model = pretrain(tokenizer, held_out, config, report, device)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
