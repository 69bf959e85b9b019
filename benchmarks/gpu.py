"""Measures the embedded trainer and the engines on one GPU, with random weights of a published shape: speed and memory.

`python -m benchmarks gpu Qwen3-0.6B` on a machine with a GPU, or `micro` for the tiny base, also on a CPU. The trainer
computes in float32 with micro batches of eight rows, and in bfloat16 with micro batches by tokens, of all weights and
with LoRA. Where vLLM is installed, it samples in the same process from weights that are swapped in. Random weights
hardly ever end an answer, so every answer has the greatest length. docs/gpu.md has the figures that were measured.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar

from benchmarks.demo_solver import solver_job, train_here
from core.settings.templates import RZERO_SOLVER
from core.settings.trainers import LocalSettings, Lora
from core.settings.training import Sampling, TrainingSampling
from orchestrator.installation.home import MICRO_MODEL
from services.inference.encoding import encode_chat
from services.inference.engines.base import Prompt
from services.inference.engines.embedded import TransformersEngine
from trainers.local.checkpoints import complete_weights
from trainers.local.grpo import token_logprobs
from trainers.local.precision import compute_in_bfloat16
from trainers.local.sampler import write_weights
from trainers.local.state import Metrics
from trainers.micro.world import make_benchmark

_GIB = 2**30
_STEPS, _PROMPTS, _ROLLOUTS, _MICRO_BATCH, _TOKENS = 3, 16, 8, 8, 512
_ENGINE_ROWS = 512
_PEAK = 989e12  # FLOP/s of an H100 or H200 in bfloat16, dense, by the data sheet
_SPARING: dict[str, Any] = {"precision": "bfloat16", "tokens_per_micro_batch": 16384, "checkpoint_activations": True}
VARIANTS = {
    "float32": LocalSettings(),
    "bfloat16": LocalSettings(**{**_SPARING, "checkpoint_activations": False}),
    "bfloat16, activations checkpointed": LocalSettings(**_SPARING),
    "LoRA, activations checkpointed": LocalSettings(**_SPARING, lora=Lora()),
}
_OF_BOTH: dict[str, Any] = {
    **{"num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128},
    **{"vocab_size": 151936, "tie_word_embeddings": True, "eos_token_id": 2, "pad_token_id": 0},
}
SHAPES: dict[str, dict[str, Any]] = {  # as published
    "Qwen3-0.6B": {"hidden_size": 1024, "intermediate_size": 3072},
    "Qwen3-1.7B": {"hidden_size": 2048, "intermediate_size": 6144},
}


def run(shape: str, tokens: int = _TOKENS) -> dict[str, Any]:
    """{"shape", "trainer": {variant: …}, "engine", "vllm"}: steps, tokens per second, and memory in GiB.

    `shape` is "micro" or one of `SHAPES`. "vllm" is None where it is not installed.
    """
    disable_progress_bar()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)  # as the trainer's workers do
    with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder:
        model = MICRO_MODEL if shape == "micro" else _random_model(Path(folder) / "model", shape, device)
        return {
            "shape": shape,
            "trainer": {
                name: _trainer(model, Path(folder) / name, device, tokens, settings)
                for name, settings in VARIANTS.items()
            },
            "engine": _engine(model, device, tokens),
            "vllm": _vllm(model, Path(folder), device, tokens) if find_spec("vllm") else None,
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


def _trainer(model: Path, work_dir: Path, device: str, tokens: int, settings: LocalSettings) -> dict[str, Any]:
    """Seconds and parts of each step; the greatest memory allocated, GiB; and the share of `_PEAK` in the updates."""
    changes = {"prompts_per_step": _PROMPTS, "rollouts_per_prompt": _ROLLOUTS, "micro_batch": _MICRO_BATCH}
    sampling = TrainingSampling(top_p=0.97, max_tokens=tokens)  # the demo's top_p
    work_dir.mkdir()
    job = solver_job(work_dir, 40, model, steps=_STEPS, checkpoint_every=_STEPS, sampling=sampling, **changes)
    steps, ends = list[dict[str, Any]](), [time.perf_counter()]
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()

    def report(metrics: Metrics) -> None:
        ends.append(time.perf_counter())
        kept = ("response_length", "sample_seconds", "update_seconds", "tokens_per_second", "sampler_gap")
        read = (metrics["prompt_length"] + metrics["response_length"]) * _PROMPTS * _ROLLOUTS
        # Forward and backward of the policy, and forward of the reference.
        flops = 2 * parameters * read * ((2 if settings.lora else 3) + 1)
        figures: dict[str, float | None] = {name: metrics[name] for name in kept}
        figures["update_tokens_per_second"] = read / metrics["update_seconds"]
        figures["flops_utilisation"] = flops / metrics["update_seconds"] / _PEAK
        figures["memory_gib"] = torch.cuda.max_memory_allocated() / _GIB if device != "cpu" else None
        steps.append(figures)
        print(json.dumps(figures), file=sys.stderr, flush=True)

    parameters = sum(tensor.numel() for file in model.glob("*.safetensors") for tensor in load_file(file).values())
    train_here(job, report, device, settings)
    seconds = [end - begin for begin, end in pairwise(ends)]
    return {**changes, "max_tokens": tokens, "parameters": parameters, "seconds": seconds, "steps": steps}


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


def _vllm(model: Path, folder: Path, device: str, tokens: int) -> dict[str, Any]:
    """vLLM in this process as a trainer's sampler: tokens per second, seconds of a swap, and the gap between its
    log-probabilities and the trainer's in bfloat16, in nats per token, with top_p 1 and 0.97."""
    from vllm import LLM, SamplingParams

    engine = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).to(device).eval()
    compute_in_bfloat16(engine)
    settings: dict[str, Any] = {"gpu_memory_utilization": 0.5}
    if device == "cpu":  # as in deploy/serve/vllm-cpu.yaml
        settings = {"kv_cache_memory_bytes": 1 << 27, "enforce_eager": True, "enable_chunked_prefill": False}
    llm = LLM(
        str(model),
        dtype="bfloat16",
        max_model_len=min(tokens + 256, engine.config.max_position_embeddings),
        worker_extension_cls="services.inference.vllm.weights.SwappedWeights",
        **settings,
    )
    llm.collective_rpc("limits")  # it remembers the tensors' shapes
    tokenizer = AutoTokenizer.from_pretrained(model)
    problems = make_benchmark(seed=1, per_level=40)[:_PROMPTS]
    prompts = [encode_chat(tokenizer, RZERO_SOLVER.messages(problem.text)) for problem in problems]
    figures: dict[str, Any] = {}
    for top_p in (1.0, 0.97):
        parameters = SamplingParams(n=_ROLLOUTS, top_p=top_p, max_tokens=tokens, logprobs=0, seed=1)
        begin = time.perf_counter()
        outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], parameters, use_tqdm=False)
        seconds = time.perf_counter() - begin
        answers = [(prompts[i], answer) for i, output in enumerate(outputs) for answer in output.outputs]
        count, gaps = sum(len(answer.token_ids) for _, answer in answers), list[torch.Tensor]()
        for prompt, answer in answers[:_ROLLOUTS]:
            ids = torch.tensor([[*prompt, *answer.token_ids]], device=device)
            mask = (torch.arange(ids.shape[1], device=device) >= len(prompt))[None]
            with torch.no_grad():
                own = token_logprobs(engine, ids, mask, 1.0)[0][mask].cpu()
            pairs = zip(answer.token_ids, answer.logprobs, strict=True)
            gaps.append((own - torch.tensor([top[token].logprob for token, top in pairs])).abs())
        gap = torch.cat(gaps)
        figures[f"top_p {top_p:g}"] = {
            "tokens": count,
            "seconds": seconds,
            "tokens_per_s": count / seconds,
            "gap_mean": float(gap.mean()),
            "gap_max": float(gap.max()),
        }
    swaps = list[dict[str, float]]()
    for number in range(3):
        begin = time.perf_counter()
        weights = complete_weights(engine, True, torch.bfloat16)
        assert weights is not None
        size = write_weights(folder / f"weights-{number}", weights, engine, model)
        written = time.perf_counter()
        llm.collective_rpc("swap_weights", args=(str(folder / f"weights-{number}"),))
        end = time.perf_counter()
        swaps.append({"bytes": size, "write_s": written - begin, "load_s": end - written})
    return {**figures, "swaps": swaps}
