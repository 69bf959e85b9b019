"""The description of the machine that `coevo bench NAME --json` prints with the figures."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from benchmarks.machine import machine
from orchestrator.cli import app

_CPUINFO = "processor\t: {}\nmodel name\t: Quick(R) Processor: 9\nflags\t\t: fpu sse2 {}\n\n"


@pytest.mark.parametrize(("flags", "has"), [("avx512f avx512cd", True), ("avx2", False), ("avx512_vnni", False)])
def test_the_processor_is_read_from_linux_s_description(tmp_path: Path, flags: str, has: bool) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("".join(_CPUINFO.format(number, flags) for number in range(2)))
    description = machine(file)
    assert (description["processor"], description["avx512"]) == ("Quick(R) Processor: 9", has)
    assert (description["cores"], description["python"]) == (os.cpu_count(), platform.python_version())
    assert description["torch"] == torch.__version__


def test_without_the_description_avx_512_is_not_known(tmp_path: Path) -> None:
    description = machine(tmp_path / "none")
    assert description["avx512"] is None
    assert description["processor"]


def test_a_benchmark_s_json_has_the_machine_and_the_figures() -> None:
    printed = json.loads(CliRunner().invoke(app, ["bench", "sets", "--json"]).stdout)
    assert printed["machine"] == machine()
    assert printed["sets"] == 10_518_300
