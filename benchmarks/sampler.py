"""Compares the embedded engine's sampling loop with transformers' `generate`.

Both sample the same prompts with the same settings and batch sizes, alternately in one run, on one thread.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from benchmarks.smollm2 import gguf_file, write_smollm2
from core.settings.templates import RZERO_SOLVER
from core.settings.training import Sampling
from orchestrator.installation.home import MICRO_MODEL
from services.inference.engines.base import Prompt
from services.inference.engines.embedded import TransformersEngine
from trainers.micro import world


@dataclass(frozen=True, slots=True)
class _Load:
    """What is sampled in a round: `votes` completions of at most `tokens` tokens per prompt, `rows` at once."""

    prompts: int
    votes: int
    tokens: int
    rows: int
    rounds: int


_TINY = [_Load(prompts=2 * rows // 8, votes=8, tokens=110, rows=rows, rounds=5) for rows in (64, 128, 256, 512)]
_SMOLLM2 = [_Load(prompts=rows // 8, votes=8, tokens=16, rows=rows, rounds=3) for rows in (64, 128)]


def run() -> dict[str, Any]:
    """{ratio, tiny, smollm2}. `tiny` and `smollm2` have the figures by the number of rows, and `ratio` is the geometric
    mean of the tiny model's. The figures of SmolLM2 are null if it is not installed."""
    disable_progress_bar()
    torch.set_num_threads(1)
    tiny = {str(load.rows): _compare(MICRO_MODEL, load) for load in _TINY}
    smollm2 = None
    if (gguf := gguf_file()) is not None:
        with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder:
            write_smollm2(gguf, Path(folder))
            smollm2 = {str(load.rows): _compare(Path(folder), load) for load in _SMOLLM2}
    mean_ratio = statistics.geometric_mean(row["ratio"] for row in tiny.values())
    return {"ratio": round(mean_ratio, 2), "tiny": tiny, "smollm2": smollm2}


def _compare(folder: Path, load: _Load) -> dict[str, Any]:
    engine = TransformersEngine(folder, max_rows=load.rows, waiting_rows=load.rows // 2)
    rng, sampling = random.Random(0), Sampling(top_p=1.0, max_tokens=load.tokens)
    questions = [world.make_problem(rng).text for _ in range(load.prompts)]
    prompts = [
        Prompt(tuple(RZERO_SOLVER.messages(question)), 1000 * index, load.votes, sampling)
        for index, question in enumerate(questions)
    ]

    def sample() -> int:
        return sum(len(completion.tokens) for group in engine.generate(prompts) for completion in group)

    sample()  # warm up
    rates = [(rate(sample), rate(lambda: _sample_with_transformers(engine, prompts))) for _ in range(load.rounds)]
    engine_rate, library_rate = (statistics.median(column) for column in zip(*rates, strict=True))
    return {
        "ratio": round(statistics.median(ours / theirs for ours, theirs in rates), 2),
        "tokens_per_s": round(engine_rate),
        "generate_tokens_per_s": round(library_rate),
    }


def rate(sample: Callable[[], int]) -> float:
    """Tokens per second."""
    start = time.perf_counter()
    return sample() / (time.perf_counter() - start)


def _sample_with_transformers(engine: TransformersEngine, prompts: Sequence[Prompt]) -> int:
    """Sample the engine's model with transformers' `generate`, and return the number of tokens."""
    engine.tokenizer.padding_side = "left"
    encoded = engine.tokenizer.apply_chat_template(
        [list(prompt.messages) for prompt in prompts for _ in range(prompt.n)],
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
        padding=True,
    )
    count, max_tokens = 0, prompts[0].sampling.max_tokens
    for start in range(0, len(encoded["input_ids"]), engine.max_rows):
        batch = {name: tensor[start : start + engine.max_rows] for name, tensor in encoded.items()}
        sequences = engine.model.generate(**batch, do_sample=True, top_k=0, max_new_tokens=max_tokens)
        answers = sequences[:, batch["input_ids"].shape[1] :]
        count += int((answers != engine.tokenizer.pad_token_id).sum())
    return count
