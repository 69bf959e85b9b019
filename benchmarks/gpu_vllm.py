"""Measures vLLM as a trainer's sampler in one process: tokens per second, a swap of weights, the log-probabilities.

`python -m benchmarks.gpu_vllm Qwen3-0.6B` on a machine with a GPU and vLLM, or `micro` for the tiny base. With `eager`
as a second argument vLLM compiles nothing. The shape's weights are random, so each answer has the greatest length. The
final norm is five times the usual one, since without this all tokens are about equally likely. docs/gpu.md has the
figures that were measured.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from benchmarks.gpu import random_model
from core.settings.templates import RZERO_SOLVER
from orchestrator.installation.home import MICRO_MODEL
from trainers.local.grpo import token_logprobs
from trainers.micro.world import make_benchmark

_PROMPTS, _ROLLOUTS, _TOKENS = 16, 8, 512
_COMPARED = 16  # answers whose log-probabilities are compared
_SHARPER, _CHANGE = 5.0, 0.05


def run(shape: str, eager: bool = False, tokens: int = _TOKENS) -> dict[str, Any]:
    """Seconds, tokens per second, and gaps: by `top_p`, before and after a swap, in nats a token."""
    from vllm import LLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory(prefix="coevo-bench-", dir="/dev/shm") as folder:
        first, second = Path(folder) / "first", Path(folder) / "second"
        start = MICRO_MODEL if shape == "micro" else random_model(Path(folder) / "start", shape, device)
        _change(start, first, 1.0 if shape == "micro" else _SHARPER, 0.0, device)
        _change(first, second, 1.0, _CHANGE, device)
        prompts = _prompts(first)
        context = min(1024, AutoConfig.from_pretrained(first).max_position_embeddings)
        tokens = min(tokens, context - max(map(len, prompts)))
        begin = time.perf_counter()
        llm: Any = LLM(
            str(first),
            dtype="bfloat16",
            enforce_eager=eager,
            max_model_len=context,
            max_num_seqs=_PROMPTS * _ROLLOUTS,
            seed=1,
            **({"gpu_memory_utilization": 0.5} if device == "cuda" else {}),
        )
        started = time.perf_counter() - begin
        _sample(llm, prompts, 1.0, 16)  # the first call compiles and allocates
        result: dict[str, Any] = {"shape": shape, "eager": eager, "start_seconds": started, "sampling": []}
        for top_p in (1.0, 0.97):
            result["sampling"].append(_measured(llm, prompts, top_p, tokens, first, device))
        begin = time.perf_counter()
        llm.collective_rpc("reload_weights", kwargs={"weights_path": str(second)})
        llm.reset_prefix_cache()
        result["swap_seconds"] = time.perf_counter() - begin
        result["bytes"] = sum(file.stat().st_size for file in second.glob("*.safetensors"))
        result["after_swap"] = _measured(llm, prompts, 1.0, tokens, second, device)
        result["after_swap"]["gap_to_old_weights"] = _measured(llm, prompts, 1.0, 64, first, device)["gap_float32"]
        return result


def _change(source: Path, target: Path, norm: float, noise: float, device: str) -> None:
    """Save the model with its final norm times `norm`, and noise of this share of each tensor's spread."""
    model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16).to(device)
    torch.manual_seed(1)
    with torch.no_grad():
        model.model.norm.weight.mul_(norm)
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.add_(torch.randn_like(weight) * (noise * weight.float().std()).to(weight.dtype))
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source).save_pretrained(target)


def _prompts(folder: Path) -> list[list[int]]:
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    questions = [problem.text for problem in make_benchmark(seed=1, per_level=40)][:_PROMPTS]
    texts = [
        tokenizer.apply_chat_template(RZERO_SOLVER.messages(text), add_generation_prompt=True, tokenize=False)
        for text in questions
    ]
    return [list(tokenizer.encode(text, add_special_tokens=False)) for text in texts]


def _sample(llm: Any, prompts: list[list[int]], top_p: float, tokens: int) -> list[Any]:
    from vllm import SamplingParams

    sampling = SamplingParams(
        n=_ROLLOUTS, temperature=1.0, top_p=top_p, max_tokens=tokens, ignore_eos=True, logprobs=0, detokenize=False
    )
    return list(llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False))


def _measured(
    llm: Any, prompts: list[list[int]], top_p: float, tokens: int, folder: Path, device: str
) -> dict[str, Any]:
    """Speed, and the mean and greatest difference to the log-probabilities that `folder`'s model has for the tokens."""
    begin = time.perf_counter()
    outputs = _sample(llm, prompts, top_p, tokens)
    seconds = time.perf_counter() - begin
    answers = [(list(output.prompt_token_ids), answer) for output in outputs for answer in output.outputs]
    count = sum(len(answer.token_ids) for _, answer in answers)
    result: dict[str, Any] = {"top_p": top_p, "tokens": count, "seconds": seconds, "tokens_per_s": count / seconds}
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device)
        result[f"gap_{name}"] = _gap(model, answers[:: max(1, len(answers) // _COMPARED)], device)
        del model
    if device == "cuda":
        torch.cuda.empty_cache()
    return result


def _gap(model: Any, answers: list[tuple[list[int], Any]], device: str) -> dict[str, float]:
    gaps = []
    for prompt, answer in answers:
        ids = torch.tensor([[*prompt, *answer.token_ids]], device=device)
        mask = torch.zeros_like(ids, dtype=torch.bool)
        mask[0, len(prompt) :] = True
        with torch.no_grad():
            own, _ = token_logprobs(model, ids, mask, 1.0)
        theirs = [step[token].logprob for step, token in zip(answer.logprobs, answer.token_ids, strict=True)]
        gaps.append((own[mask].cpu() - torch.tensor(theirs)).abs())
    every = torch.cat(gaps)
    return {"mean": float(every.mean()), "greatest": float(every.max()), "tokens": len(every)}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], eager="eager" in sys.argv[2:])))
