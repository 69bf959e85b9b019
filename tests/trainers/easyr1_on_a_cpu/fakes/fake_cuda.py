"""What EasyR1 asks of torch.cuda, answered by the CPU. `torch.cuda.is_available()` stays False."""

from __future__ import annotations

from typing import Any

import psutil
import torch
import torch._dynamo  # first: it makes a table of torch's functions, in which none may be there twice
import torch.distributed.fsdp._init_utils as fsdp


def _memory() -> tuple[int, int]:
    memory = psutil.virtual_memory()
    return memory.available, memory.total


def _nothing(*_: Any, **__: Any) -> int:
    return 0


torch.cuda.current_device = lambda: torch.device("cpu")
torch.cuda.get_device_name = lambda *_: "CPU"
torch.cuda.mem_get_info = lambda *_: _memory()
# EasyR1 and vLLM draw from the GPU's generator: here from the CPU's.
torch.cuda.get_rng_state, torch.cuda.set_rng_state = torch.get_rng_state, torch.set_rng_state
torch.cuda.manual_seed = torch.manual_seed
for name in ("empty_cache", "set_device", "synchronize", "max_memory_allocated", "max_memory_reserved"):
    setattr(torch.cuda, name, _nothing)

# FSDP wants weights on a GPU before it sends rank 0's to the others; gloo sends them from a CPU too.
fsdp._check_module_states_for_sync_module_states = _nothing
