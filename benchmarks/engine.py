"""Why the embedded engine has a sampling loop of its own: tokens per second against transformers' `generate`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.config import Sampling
from core.prompts import solver_messages
from services.inference.engine import Prompt
from services.inference.transformers_engine import TransformersEngine
from trainers.micro import world

_MODEL = Path(world.__file__).parent / "model"
_PROMPTS, _VOTES, _ROUNDS, _MAX_TOKENS = 100, 10, 3, 110


def run() -> dict[str, Any]:
    """Both sample the same prompts, in turns, on one thread. -> tokens per second (medians) and their ratio."""
    torch.set_num_threads(1)
    engine = TransformersEngine(_MODEL)
    rng = random.Random(0)
    questions = [world.make_problem(rng).text for _ in range(_PROMPTS)]
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(_ROUNDS):
        ours.append(_rate(lambda: _own_loop(engine, questions)))
        theirs.append(_rate(lambda: _generate(engine, questions)))
    own, library = float(np.median(ours)), float(np.median(theirs))
    return {
        "prompts": _PROMPTS,
        "completions": _PROMPTS * _VOTES,
        "own_tokens_per_s": round(own),
        "generate_tokens_per_s": round(library),
        "speedup_vs_generate": round(own / library, 2),
    }


def _rate(sample: Callable[[], int]) -> float:
    started = time.perf_counter()
    return sample() / (time.perf_counter() - started)


def _own_loop(engine: TransformersEngine, questions: list[str]) -> int:
    sampling = Sampling(top_p=1.0, max_tokens=_MAX_TOKENS)
    prompts = [Prompt(tuple(solver_messages(q)), 1000 * i, _VOTES, sampling) for i, q in enumerate(questions)]
    return sum(len(completion.tokens) for group in engine.generate(prompts) for completion in group)


def _generate(engine: TransformersEngine, questions: list[str]) -> int:
    engine.tokenizer.padding_side = "left"
    encoded = engine.tokenizer.apply_chat_template(
        [solver_messages(question) for question in questions for _ in range(_VOTES)],
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
        padding=True,
    )
    count = 0
    for start in range(0, len(questions) * _VOTES, engine.max_rows):
        batch = {name: tensor[start : start + engine.max_rows] for name, tensor in encoded.items()}
        whole = engine.model.generate(**batch, do_sample=True, top_k=0, max_new_tokens=_MAX_TOKENS)
        new = whole[:, batch["input_ids"].shape[1] :]
        count += int((new != engine.tokenizer.pad_token_id).sum())
    return count
