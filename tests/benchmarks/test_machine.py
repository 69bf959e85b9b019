"""`python -m benchmarks`: the machine, and what it refuses."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.__main__ import NAMES
from benchmarks.machine import in_words, machine
from orchestrator.installation.home import ROOT

_CPUINFO = "processor\t: {}\nmodel name\t: Quick(R) Processor: 9\nflags\t\t: fpu sse2 {}\n\n"


@pytest.mark.parametrize(("flags", "has"), [("avx512f avx512cd", True), ("avx2", False), ("avx512_vnni", False)])
def test_the_processor_is_read_from_linux_s_description(tmp_path: Path, flags: str, has: bool) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("".join(_CPUINFO.format(number, flags) for number in range(2)))
    description = machine(file)
    assert (description["processor"], description["avx512"]) == ("Quick(R) Processor: 9", has)
    assert (description["cores"], description["python"]) == (os.cpu_count(), platform.python_version())
    assert description["torch"] == torch.__version__
    assert in_words(description).startswith(
        f"Measured on Quick(R) Processor: 9, {os.cpu_count()} cores, {'with' if has else 'without'} AVX-512; "
    )


def test_without_the_description_avx_512_is_not_known(tmp_path: Path) -> None:
    description = machine(tmp_path / "none")
    assert description["avx512"] is None
    assert description["processor"]


@pytest.mark.parametrize("arguments", [("sets",), ("startup", "math500")])
def test_an_unknown_name_and_an_argument_too_many_are_refused(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert arguments[-1] in refused.stderr


def test_every_benchmark_has_a_file() -> None:
    assert all((ROOT / "benchmarks" / f"{name}.py").exists() for name in NAMES)
