"""Runs an engine alone in a separate process: `python -m benchmarks.serving_direct ENGINE SIZE FOLDER`.

For every line that it reads, it samples the prompts of the benchmark `serving` and prints the number of tokens.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.services import FILES
from benchmarks.serving import prompts_of
from orchestrator.serving.applications import read_applications


def main(engine: str, size: str, folder: Path) -> None:
    sample = (_vllm if engine == "vllm" else _transformers)(size, folder)
    for _ in sys.stdin:
        print(json.dumps({"tokens": sample()}), flush=True)


def _transformers(size: str, folder: Path) -> Callable[[], int]:
    import torch

    from services.inference.engines.base import WAITING_ROWS
    from services.inference.engines.embedded import TransformersEngine

    torch.set_num_threads(1)
    engine, prompts = TransformersEngine(folder, waiting_rows=WAITING_ROWS), prompts_of(size)
    return lambda: sum(len(completion.tokens) for group in engine.generate(prompts) for completion in group)


def _vllm(size: str, folder: Path) -> Callable[[], int]:
    from vllm import LLM, SamplingParams

    arguments: dict[str, Any] = read_applications(FILES["vllm"])["solver"]["args"]["llm_configs"][0]["engine_kwargs"]
    engine_arguments = {name: value for name, value in arguments.items() if name != "worker_extension_cls"}
    model, prompts = LLM(model=str(folder), **engine_arguments), prompts_of(size)
    chats = [list(prompt.messages) for prompt in prompts]
    sampling = [
        SamplingParams(
            n=prompt.n,
            seed=prompt.seed,
            temperature=prompt.sampling.temperature,
            top_p=prompt.sampling.top_p,
            top_k=prompt.sampling.top_k or 0,
            max_tokens=prompt.sampling.max_tokens,
            logprobs=engine_arguments["max_logprobs"],
        )
        for prompt in prompts
    ]

    def sample() -> int:
        outputs = model.chat(chats, sampling, use_tqdm=False)
        return sum(len(completion.token_ids) for output in outputs for completion in output.outputs)

    return sample


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
