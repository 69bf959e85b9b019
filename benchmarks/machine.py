"""Describes the machine of a benchmark."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any


def machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, Any]:
    """{processor: model name, cores: number of logical cores, avx512: whether it has AVX-512, python, torch: versions}.

    `cpuinfo` is Linux's description of the processor. If it has no flags, or is missing, `avx512` is None.
    """
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = fields.get("flags")
    return {
        "processor": fields.get("model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "avx512": None if flags is None else "avx512f" in flags.split(),
        "python": platform.python_version(),
        "torch": version("torch"),
    }


def in_words(description: dict[str, Any]) -> str:
    """The sentence that stands over the tables of the docs."""
    avx512 = {True: "with AVX-512", False: "without AVX-512", None: "AVX-512 not known"}[description["avx512"]]
    return (
        f"Measured on {description['processor']}, {description['cores']} cores, {avx512}; "
        f"Python {description['python']}, torch {description['torch']}."
    )
