"""A fake of EasyR1's rollout worker: it has what corrections.py corrects, and makes no rollouts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

__all__ = ["torch", "vLLMRollout"]


class vLLMRollout:
    def __init__(self, seed: int, rank: int = 0, tensor_parallel_size: int = 1) -> None:
        self.rank = rank
        self.config = SimpleNamespace(seed=seed, tensor_parallel_size=tensor_parallel_size)
        self.sampling_params = SimpleNamespace(seed=seed)

    def generate_sequences(self, prompts: Any) -> Any:
        return self.generate(prompts)

    def generate(self, prompts: Any) -> Any:
        return prompts
