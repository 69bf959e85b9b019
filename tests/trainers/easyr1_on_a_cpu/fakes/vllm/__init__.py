"""A fake of the parts of vLLM that EasyR1 calls: transformers samples on a CPU, with the weights that EasyR1 sends.

It handles seeds as vLLM does. A request with a seed draws with that seed alone, the i-th of its n samples with seed +
i, whatever the other requests are. A request without one draws from the device's generator, whose state EasyR1 sets.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

__version__ = "0.10.0"


@dataclass
class SamplingParams:
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None
    ignore_eos: bool = False
    max_tokens: int = 16
    detokenize: bool = True
    logit_bias: Any = None


@dataclass
class RequestOutput:
    outputs: list[Any]  # every output has its token_ids


class LLM:
    def __init__(self, model: str, dtype: str, seed: int, max_model_len: int, tensor_parallel_size: int, **_: Any):
        if tensor_parallel_size != 1:
            raise ValueError(f"tensor_parallel_size: expected 1 of this fake, got {tensor_parallel_size}")
        config = AutoConfig.from_pretrained(model)
        self._model: Any = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype)).eval()
        self._model.load_weights = self._load
        self._longest = max_model_len
        ends = GenerationConfig.from_pretrained(model).eos_token_id, AutoTokenizer.from_pretrained(model).eos_token_id
        self._ends = {end for ids in ends for end in (ids if isinstance(ids, list) else [ids])} - {None}
        worker = SimpleNamespace(worker=SimpleNamespace(model_runner=SimpleNamespace(model=self._model)))
        self.llm_engine = SimpleNamespace(model_executor=SimpleNamespace(driver_worker=worker))
        torch.manual_seed(seed)

    def sleep(self, level: int) -> None: ...

    def wake_up(self, tags: list[str] | None = None) -> None: ...

    def _load(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        sent = {name: tensor.detach().to(self._model.dtype) for name, tensor in weights}
        missing, unexpected = self._model.load_state_dict(sent, strict=False)
        if set(missing) - set(self._model._tied_weights_keys or ()) or unexpected:
            raise ValueError(f"weights missing: {missing}, not expected: {unexpected}")

    def generate(
        self, prompts: list[dict[str, list[int]]], sampling_params: SamplingParams, lora_request: Any, use_tqdm: bool
    ) -> list[RequestOutput]:
        params, count = sampling_params, sampling_params.n
        rows = [prompt["prompt_token_ids"] for prompt in prompts for _ in range(count)]
        if params.seed is None:
            drawn = self._sample(rows, params)
        else:
            drawn = []
            for i, row in enumerate(rows):
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(params.seed + i % count)
                    drawn += self._sample([row], params)
        tokens = [SimpleNamespace(token_ids=tuple(token_ids)) for token_ids in drawn]
        return [RequestOutput(tokens[i : i + count]) for i in range(0, len(tokens), count)]

    @torch.no_grad()
    def _sample(self, rows: list[list[int]], params: SamplingParams) -> list[list[int]]:
        longest = max(map(len, rows))
        if longest + params.max_tokens > self._longest:
            raise ValueError(f"{longest} + {params.max_tokens} tokens: expected at most {self._longest}")
        sampled = self._model.generate(
            input_ids=torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows]),
            attention_mask=torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows]),
            max_new_tokens=params.max_tokens,
            do_sample=True,
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=max(params.top_k, 0),
            eos_token_id=sorted(self._ends),
            pad_token_id=0,
        )
        return [self._up_to_its_end(row) for row in sampled[:, longest:].tolist()]

    def _up_to_its_end(self, tokens: list[int]) -> list[int]:
        first = next((i for i, token in enumerate(tokens) if token in self._ends), len(tokens))
        return tokens[: first + 1]


def _module(name: str, **names: Any) -> None:
    module = ModuleType(name)
    module.__dict__.update(names, __path__=[])
    sys.modules[name] = module


_module("vllm.lora")
_module("vllm.lora.models", LoRAModel=object)
_module("vllm.lora.request", LoRARequest=object)
_module("vllm.lora.utils", get_adapter_absolute_path=None)
_module("vllm.lora.worker_manager", LRUCacheWorkerLoRAManager=type("LRUCacheWorkerLoRAManager", (), {}))
_module(
    "vllm.distributed",
    parallel_state=SimpleNamespace(
        get_tensor_model_parallel_world_size=lambda: 1,
        get_tensor_model_parallel_rank=lambda: 0,
        get_tensor_model_parallel_group=lambda: SimpleNamespace(device_group=dist.new_subgroups(1)[0]),
    ),
)
