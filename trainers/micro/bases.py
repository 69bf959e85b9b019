"""The tiny base models: "micro", which the demo starts from, and "micro-long", which has longer questions and more to
learn.

The arithmetic of "micro" is not always right: even if it never guessed, it would solve 78% of its benchmark. So
training soon reaches that ceiling. "micro-long" has up to twelve operations, and it saw every line of a long solution
often enough to compute it right (`PretrainConfig.complete_share`), so nearly all that it gets wrong at first can be
learned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from trainers.micro.families import Problem
from trainers.micro.world import LONG, SHORT, World, make_benchmark

_FOLDER = Path(__file__).resolve().parent
DEFAULT = "micro"


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a model in the stock Qwen3 architecture, with heads of 32."""

    hidden_size: int
    layers: int


SIZES = {"0.5M": Size(96, 4), "1M": Size(128, 5), "2M": Size(160, 6)}  # by the number of parameters, about


@dataclass(frozen=True, slots=True)
class PretrainConfig:
    """What a model is pre-trained on, and how."""

    world: World = SHORT
    size: Size = field(default_factory=lambda: SIZES["0.5M"])
    seed: int = 7
    steps: int = 8000
    batch: int = 64
    learning_rate: float = 6e-3  # of both optimisers: Muon's update is scaled to the size of AdamW's
    warmup: int = 100  # steps
    final_lr_share: float = 0.02  # of `learning_rate`, reached at the last step
    challenger_share: float = 0.15  # of the documents
    # Share of the Solver's documents that are complete. A writer who may guess seldom reaches the last lines of a long
    # solution, so without them the model hardly learns to compute these lines. The model does not learn from them
    # whether to guess.
    complete_share: float = 0.0
    log_every: int = 100  # steps


@dataclass(frozen=True, slots=True)
class TinyBase:
    """A shipped base model with its benchmark."""

    model: Path
    benchmark: Path
    benchmark_seed: int
    per_level: int  # questions of the benchmark for each number of operations
    pretraining: PretrainConfig
    fewest_operations: int = 1  # in a question of the benchmark

    @property
    def world(self) -> World:
        return self.pretraining.world

    def held_out(self) -> list[Problem]:
        """The questions of the benchmark, made anew from its seed."""
        return make_benchmark(self.benchmark_seed, self.per_level, self.world, self.fewest_operations)


BASES = {
    DEFAULT: TinyBase(_FOLDER / "model", _FOLDER / "benchmark.jsonl", 20261122, 170, PretrainConfig()),
    "micro-long": TinyBase(
        _FOLDER / "model_long",
        _FOLDER / "benchmark_long.jsonl",
        20261126,
        93,
        PretrainConfig(LONG, steps=4000, batch=256, complete_share=0.5),
        fewest_operations=2,  # it answers nearly every question with one
    ),
}
