"""Replaces the functions of torch.cuda that EasyR1 calls by functions for the CPU; `is_available()` stays False."""

from __future__ import annotations

from typing import Any

import psutil
import torch
import torch._dynamo  # imported before the replacements: its table of torch's functions may have none twice
import torch.distributed.fsdp._init_utils as fsdp


def _memory() -> tuple[int, int]:
    memory = psutil.virtual_memory()
    return memory.available, memory.total


def _nothing(*_: Any, **__: Any) -> int:
    return 0


torch.cuda.current_device = lambda: torch.device("cpu")
torch.cuda.get_device_name = lambda *_: "CPU"
torch.cuda.mem_get_info = lambda *_: _memory()
# EasyR1 and vLLM draw from the GPU's random generator; here they draw from the CPU's.
torch.cuda.get_rng_state, torch.cuda.set_rng_state = torch.get_rng_state, torch.set_rng_state
torch.cuda.manual_seed = torch.manual_seed
for name in ("empty_cache", "set_device", "synchronize", "max_memory_allocated", "max_memory_reserved"):
    setattr(torch.cuda, name, _nothing)

# FSDP requires weights on a GPU before it sends rank 0's to the others; gloo can also send them from a CPU.
fsdp._check_module_states_for_sync_module_states = _nothing
