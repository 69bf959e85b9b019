"""Measures the embedded trainer and engine on one GPU, with random weights of a published shape: speed and memory.

`python -m benchmarks gpu Qwen3-0.6B` on a machine with a GPU, or `micro` for the tiny base. Random weights hardly ever
end an answer, so every answer has the greatest length. docs/gpu.md has the figures that were measured.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar

from benchmarks.demo_solver import solver_job, train_here
from core.settings.templates import RZERO_SOLVER
from core.settings.training import Sampling, TrainingSampling
from orchestrator.installation.home import MICRO_MODEL
from services.inference.engines.base import Prompt
from services.inference.engines.embedded import TransformersEngine
from trainers.local.state import Metrics
from trainers.micro.world import make_benchmark

_GIB = 2**30
_STEPS, _PROMPTS, _ROLLOUTS, _MICRO_BATCH, _TOKENS = 3, 16, 8, 8, 512
_ENGINE_ROWS = 512
_OF_BOTH: dict[str, Any] = {
    **{"num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128},
    **{"vocab_size": 151936, "tie_word_embeddings": True, "eos_token_id": 2, "pad_token_id": 0},
}
SHAPES: dict[str, dict[str, Any]] = {  # as published
    "Qwen3-0.6B": {"hidden_size": 1024, "intermediate_size": 3072},
    "Qwen3-1.7B": {"hidden_size": 2048, "intermediate_size": 6144},
}


def run(shape: str, device: str = "cuda", tokens: int = _TOKENS) -> dict[str, Any]:
    """{"shape", "trainer", "engine"}: the trainer's steps, and the engine's tokens per second.

    `shape` is "micro" or one of `SHAPES`.
    """
    disable_progress_bar()
    if device == "cpu":
        torch.set_num_threads(1)  # as the trainer's workers do
    with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder:
        model = MICRO_MODEL if shape == "micro" else _random_model(Path(folder) / "model", shape, device)
        return {
            "shape": shape,
            "trainer": _trainer(model, Path(folder) / "job", device, tokens),
            "engine": _engine(model, device, tokens),
        }


def _random_model(folder: Path, shape: str, device: str) -> Path:
    """Random weights in bfloat16, with the tiny base's tokenizer, which knows only the first of the tokens."""
    torch.manual_seed(0)
    with torch.device(device):
        model: Any = Qwen3ForCausalLM(Qwen3Config(**_OF_BOTH, **SHAPES[shape]))
    model.to(torch.bfloat16).save_pretrained(folder)
    for file in (*MICRO_MODEL.glob("tokenizer*"), MICRO_MODEL / "chat_template.jinja"):
        shutil.copy(file, folder)
    return folder


def _trainer(model: Path, work_dir: Path, device: str, tokens: int) -> dict[str, Any]:
    """Seconds and parts of each step, and the greatest memory allocated by then, GiB."""
    settings = {"prompts_per_step": _PROMPTS, "rollouts_per_prompt": _ROLLOUTS, "micro_batch": _MICRO_BATCH}
    sampling = TrainingSampling(top_p=0.97, max_tokens=tokens)  # the demo's top_p
    work_dir.mkdir()
    job = solver_job(work_dir, 40, model, steps=_STEPS, checkpoint_every=_STEPS, sampling=sampling, **settings)
    steps, ends = list[dict[str, Any]](), [time.perf_counter()]

    def report(metrics: Metrics) -> None:
        ends.append(time.perf_counter())
        kept = ("response_length", "sample_seconds", "update_seconds", "tokens_per_second", "sampler_gap")
        memory = torch.cuda.max_memory_allocated() / _GIB if device != "cpu" else None
        steps.append({**{name: metrics[name] for name in kept}, "memory_gib": memory})
        print(json.dumps(steps[-1]), file=sys.stderr, flush=True)

    train_here(job, report, device)
    return {**settings, "max_tokens": tokens, "seconds": [end - begin for begin, end in pairwise(ends)], "steps": steps}


def _engine(model: Path, device: str, tokens: int) -> dict[str, Any]:
    engine = TransformersEngine(model, device=device, max_rows=_ENGINE_ROWS)
    sampling = Sampling(top_p=0.99, max_tokens=tokens)
    prompts = [
        Prompt(tuple(RZERO_SOLVER.messages(problem.text)), index, 8, sampling)
        for index, problem in enumerate(make_benchmark(seed=1, per_level=40))
    ][: _ENGINE_ROWS // 8]
    engine.generate(prompts[:4])  # the first call compiles and allocates
    begin = time.perf_counter()
    groups = engine.generate(prompts)
    seconds = time.perf_counter() - begin
    count = sum(len(completion.tokens) for group in groups for completion in group)
    return {"rows": _ENGINE_ROWS, "tokens": count, "seconds": seconds, "tokens_per_s": count / seconds}
