"""Measures the embedded trainer and engine on one GPU, with random weights of a published shape: speed and memory.

`python -m benchmarks.gpu Qwen3-0.6B` on a machine with a GPU, or `micro` for the tiny base. Random weights hardly ever
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

from core.grading.grader import Grader
from core.settings.parsing import load_config
from core.settings.templates import RZERO_SOLVER
from core.settings.training import Sampling
from core.types import Checkpoint
from orchestrator.check.size.shapes import PUBLISHED
from orchestrator.installation.home import MICRO_MODEL, PRESETS
from services.inference.engines.base import Prompt
from services.inference.engines.embedded import TransformersEngine
from trainers.base import SolverJob, TrainQuestion
from trainers.local.loop import train
from trainers.local.ranks import Ranks
from trainers.local.rewards import make_reward
from trainers.local.state import Metrics
from trainers.micro.world import make_benchmark

_GIB = 2**30
_STEPS, _PROMPTS, _ROLLOUTS, _MICRO_BATCH, _TOKENS = 3, 16, 8, 8, 512
_ENGINE_ROWS = 512


def run(shape: str, device: str = "cuda", tokens: int = _TOKENS) -> dict[str, Any]:
    """{"shape", "trainer", "engine"}: the trainer's steps, and the engine's tokens per second.

    `shape` is "micro" or a name of a Qwen3 model in `orchestrator.check.size.shapes.PUBLISHED`.
    """
    disable_progress_bar()
    if device == "cpu":
        torch.set_num_threads(1)  # as the trainer's workers do
    questions = [
        TrainQuestion(f"q{index}", problem.text, str(problem.answer))
        for index, problem in enumerate(make_benchmark(seed=1, per_level=40))
    ]
    with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder:
        model = MICRO_MODEL if shape == "micro" else random_model(Path(folder) / "model", shape, device)
        return {
            "shape": shape,
            "trainer": _trainer(model, questions, Path(folder) / "job", device, tokens),
            "engine": _engine(model, questions, device, tokens),
        }


def random_model(folder: Path, shape: str, device: str) -> Path:
    """Random weights in bfloat16, with the tiny base's tokenizer, which knows only the first of the tokens."""
    torch.manual_seed(0)
    settings = PUBLISHED[shape].model_dump()
    del settings["normed_heads"]
    with torch.device(device):
        model: Any = Qwen3ForCausalLM(Qwen3Config(**settings, eos_token_id=2, pad_token_id=0))
    model.to(torch.bfloat16).save_pretrained(folder)
    for file in (*MICRO_MODEL.glob("tokenizer*"), MICRO_MODEL / "chat_template.jinja"):
        shutil.copy(file, folder)
    return folder


def _trainer(model: Path, questions: list[TrainQuestion], work_dir: Path, device: str, tokens: int) -> dict[str, Any]:
    """Seconds and parts of each step, and the greatest memory allocated by then, GiB."""
    solver = load_config(PRESETS / "demo.toml").solver
    training = solver.training.model_copy(
        update={
            "steps": _STEPS,
            "checkpoint_every": _STEPS,
            "workers": 1,
            "prompts_per_step": _PROMPTS,
            "rollouts_per_prompt": _ROLLOUTS,
            "micro_batch": _MICRO_BATCH,
            "sampling": solver.training.sampling.model_copy(update={"max_tokens": tokens}),
        }
    )
    steps, ends = list[dict[str, Any]](), [time.perf_counter()]

    def report(metrics: Metrics) -> None:
        ends.append(time.perf_counter())
        kept = ("response_length", "sample_seconds", "update_seconds", "tokens_per_second", "sampler_gap")
        memory = torch.cuda.max_memory_allocated() / _GIB if device != "cpu" else None
        steps.append({**{name: metrics[name] for name in kept}, "memory_gib": memory})
        print(json.dumps(steps[-1]), file=sys.stderr, flush=True)

    work_dir.mkdir()
    start = Checkpoint("bench/base/0", "bench", "base", 0, 0, str(model), "0" * 64, None)
    with Grader() as grader:
        job = SolverJob(
            key="1/train_solver",
            run_seed=1,
            start=start,
            training=training,
            reward=solver.reward,
            questions=tuple(questions),
            work_dir=work_dir,
        )
        reward = make_reward(job, Ranks(), grader)
        train(job, reward, ranks=Ranks(), device=device, report=report, stopped=lambda: False)
    return {
        "prompts": _PROMPTS,
        "rollouts": _ROLLOUTS,
        "micro_batch": _MICRO_BATCH,
        "max_tokens": tokens,
        "seconds": [end - begin for begin, end in pairwise(ends)],
        "steps": steps,
    }


def _engine(model: Path, questions: list[TrainQuestion], device: str, tokens: int) -> dict[str, Any]:
    engine = TransformersEngine(model, device=device, max_rows=_ENGINE_ROWS)
    sampling = Sampling(top_p=0.99, max_tokens=tokens)
    prompts = [
        Prompt(tuple(RZERO_SOLVER.messages(question.text)), index, 8, sampling)
        for index, question in enumerate(questions)
    ][: _ENGINE_ROWS // 8]
    engine.generate(prompts[:4])  # the first call compiles and allocates
    begin = time.perf_counter()
    groups = engine.generate(prompts)
    seconds = time.perf_counter() - begin
    count = sum(len(completion.tokens) for group in groups for completion in group)
    return {"rows": _ENGINE_ROWS, "tokens": count, "seconds": seconds, "tokens_per_s": count / seconds}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1])))
