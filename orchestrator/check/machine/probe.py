"""Questions to torch and vLLM that may hang or end their process: `python -m` this module, and the question.

`devices` asks each in a process of its own, which it kills if no answer comes. The answer is one line of JSON, the last
on the standard output.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from datetime import timedelta
from typing import Any

_PATIENCE = timedelta(seconds=60)  # of a rank for the others
_LENGTH = 1 << 20  # numbers that are summed, which is more than one packet of NCCL


def devices() -> dict[str, Any]:
    """The GPUs that torch sees, each with the error of a first computation on it, and the reason if it sees none."""
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    gpus = []
    for index in range(torch.cuda.device_count()) if available else ():
        properties, error = torch.cuda.get_device_properties(index), None
        try:
            ones = torch.ones(64, 64, dtype=torch.bfloat16, device=f"cuda:{index}")
            if (total := float((ones @ ones).sum())) != 64**3:
                error = f"a product of matrices is {total:g} instead of {64**3}"
        except RuntimeError as raised:
            error = str(raised).splitlines()[0]
        gpus.append({"name": properties.name, "gib": properties.total_memory / 2**30, "error": error})
    reason = str(caught[-1].message).splitlines()[0] if caught else None
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "gpus": gpus, "reason": reason}


def all_reduce(count: str) -> dict[str, Any]:
    """Sum a tensor over `count` GPUs with NCCL, or with 0 over two processes on the CPU with gloo."""
    from torch.multiprocessing.spawn import spawn

    size, backend = (int(count), "nccl") if int(count) else (2, "gloo")
    since = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        spawn(_rank, (size, backend, f"file://{folder}/ranks"), nprocs=size)
    return {"ranks": size, "backend": backend, "seconds": time.monotonic() - since}


def _rank(rank: int, size: int, backend: str, meeting_point: str) -> None:
    import torch
    from torch import distributed

    distributed.init_process_group(backend, meeting_point, timeout=_PATIENCE, rank=rank, world_size=size)
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    numbers = torch.full((_LENGTH,), float(rank + 1), device=device)
    distributed.all_reduce(numbers)
    expected = size * (size + 1) / 2
    if not bool((numbers == expected).all()):
        raise RuntimeError(f"rank {rank}: expected the sum {expected:g}, got {float(numbers[0]):g}")
    distributed.destroy_process_group()


def vllm() -> dict[str, Any]:
    """The version of vLLM, after loading the kernels for this machine's processor or GPU."""
    import torch
    import vllm
    from vllm.platforms import current_platform

    current_platform.import_kernels()  # it only warns where it has none
    torch.ops._C.silu_and_mul  # noqa: B018 (raises if there is no such kernel)
    return {"version": vllm.__version__}


_QUESTIONS = {"devices": devices, "all_reduce": all_reduce, "vllm": vllm}

if __name__ == "__main__":
    answer: Any = _QUESTIONS[sys.argv[1]]
    print(json.dumps(answer(*sys.argv[2:])), flush=True)
