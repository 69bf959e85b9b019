"""The embedded engine's sampling loop against transformers' `generate`, and against what the processor could do.

Both sample the same prompts with the same settings, in turns in one run, on one thread, so many rows at once. The
limit is what the arithmetic of the tokens alone would take at the speed of a large matrix product, or what reading the
weights and the cached keys and values would take at the speed of a copy, whichever is longer.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from benchmarks.smollm2 import gguf_file, write_smollm2
from core.questions.prompts import solver_messages
from core.settings.training import Sampling
from orchestrator.installation.home import MICRO_MODEL
from services.inference.engines.base import Prompt
from services.inference.engines.embedded import TransformersEngine
from trainers.micro import world

_FLOAT = 4  # bytes


@dataclass(frozen=True, slots=True)
class _Load:
    """What is sampled: `votes` completions of each prompt, of `tokens` at most, `rows` at once, in turns."""

    prompts: int
    votes: int
    tokens: int
    rows: int
    rounds: int


_TINY = [_Load(prompts=2 * rows // 8, votes=8, tokens=110, rows=rows, rounds=5) for rows in (64, 128, 256, 512)]
_SMOLLM2 = [_Load(prompts=rows // 8, votes=8, tokens=16, rows=rows, rounds=3) for rows in (64, 128)]


def run() -> dict[str, Any]:
    """{ratio, smollm2_ratio, share_of_limit, tiny, smollm2}: `tiny` and `smollm2` have the figures by the
    number of rows, the ratios are their geometric means, the share is that of the most rows. What is not installed is
    null."""
    disable_progress_bar()
    torch.set_num_threads(1)
    speeds = _Speeds.measured()
    tiny = {str(load.rows): _compared(MICRO_MODEL, load, speeds) for load in _TINY}
    smollm2 = None
    if (gguf := gguf_file()) is not None:
        with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder:
            write_smollm2(gguf, Path(folder))
            smollm2 = {str(load.rows): _compared(Path(folder), load, speeds) for load in _SMOLLM2}
    return {
        "ratio": _mean_ratio(tiny),
        "smollm2_ratio": smollm2 and _mean_ratio(smollm2),
        "share_of_limit": tiny[str(_TINY[-1].rows)]["share_of_limit"],
        "gflops": round(speeds.flops / 1e9, 1),
        "copied_gb_per_s": round(speeds.bytes / 1e9, 1),
        "tiny": tiny,
        "smollm2": smollm2,
    }


def _mean_ratio(by_rows: dict[str, dict[str, Any]]) -> float:
    return round(statistics.geometric_mean(row["ratio"] for row in by_rows.values()), 2)


def _compared(folder: Path, load: _Load, speeds: _Speeds) -> dict[str, Any]:
    engine = TransformersEngine(folder, max_rows=load.rows, waiting_rows=load.rows // 2)
    rng, sampling = random.Random(0), Sampling(top_p=1.0, max_tokens=load.tokens)
    questions = [world.make_problem(rng).text for _ in range(load.prompts)]
    prompts = [Prompt(tuple(solver_messages(q)), 1000 * i, load.votes, sampling) for i, q in enumerate(questions)]
    _own(engine, prompts)  # warm
    rates = [
        (_rate(lambda: _own(engine, prompts)), _rate(lambda: _generate(engine, prompts))) for _ in range(load.rounds)
    ]
    own, library = (statistics.median(column) for column in zip(*rates, strict=True))
    read = [
        len(engine.tokenizer.apply_chat_template(list(p.messages), add_generation_prompt=True)["input_ids"])
        for p in prompts
    ]
    lengths = [[len(completion.tokens) for completion in group] for group in engine.generate(prompts)]
    least_seconds, limit = speeds.limit(*_Size.of(engine.model).work(read, lengths, load.rows))
    return {
        "ratio": round(statistics.median(a / b for a, b in rates), 2),
        "tokens_per_s": round(own),
        "generate_tokens_per_s": round(library),
        "limit": limit,
        "share_of_limit": round(own * least_seconds / sum(map(sum, lengths)), 3),
    }


def _rate(sample: Callable[[], int]) -> float:
    started = time.perf_counter()
    return sample() / (time.perf_counter() - started)


def _own(engine: TransformersEngine, prompts: Sequence[Prompt]) -> int:
    return sum(len(completion.tokens) for group in engine.generate(prompts) for completion in group)


def _generate(engine: TransformersEngine, prompts: Sequence[Prompt]) -> int:
    engine.tokenizer.padding_side = "left"
    encoded = engine.tokenizer.apply_chat_template(
        [list(prompt.messages) for prompt in prompts for _ in range(prompt.n)],
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
        padding=True,
    )
    count, most = 0, prompts[0].sampling.max_tokens
    for start in range(0, len(encoded["input_ids"]), engine.max_rows):
        batch = {name: tensor[start : start + engine.max_rows] for name, tensor in encoded.items()}
        whole = engine.model.generate(**batch, do_sample=True, top_k=0, max_new_tokens=most)
        new = whole[:, batch["input_ids"].shape[1] :]
        count += int((new != engine.tokenizer.pad_token_id).sum())
    return count


@dataclass(frozen=True, slots=True)
class _Speeds:
    """What one thread of this machine does in a second."""

    flops: float  # in a matrix product
    bytes: float  # read, in a copy of what no cache holds

    @classmethod
    def measured(cls) -> _Speeds:
        a, b, large = torch.randn(1024, 1024), torch.randn(1024, 1024), torch.randn(64 << 20)
        return cls(2 * 1024**3 / _least(lambda: a @ b), _FLOAT * large.numel() / _least(large.clone))

    def limit(self, flops: float, moved: float) -> tuple[float, str]:
        """The least seconds for so many operations and bytes, and which of the two takes them."""
        return max((flops / self.flops, "arithmetic"), (moved / self.bytes, "memory"))


@dataclass(frozen=True, slots=True)
class _Size:
    """The numbers of a model that say how much work a token is."""

    weights: int  # that each token is multiplied with, without the table of embeddings and the output's weights
    output: int  # weights that make the next token's probabilities
    layers: int
    heads: int
    cached_heads: int  # whose keys and values are kept
    width: int  # of a head

    @classmethod
    def of(cls, model: Any) -> _Size:
        config, apart = model.config, ("embed_tokens", "lm_head")
        return cls(
            weights=sum(p.numel() for name, p in model.named_parameters() if not any(part in name for part in apart)),
            output=config.vocab_size * config.hidden_size,
            layers=config.num_hidden_layers,
            heads=config.num_attention_heads,
            cached_heads=config.num_key_value_heads,
            width=_head_width(config),
        )

    def work(self, prompts: Sequence[int], answers: Sequence[Sequence[int]], rows: int) -> tuple[float, float]:
        """The least operations and bytes for prompts of so many tokens, read once each, with answers of so many tokens.

        A weight is a multiplication and an addition for each token, and attention two of both for each earlier token
        and head. All weights are read once for every `rows` tokens of the answers, and the kept keys and values of
        all earlier tokens once for each token.
        """
        sampled, read = sum(map(sum, answers)), sum(prompts)
        earlier = sum(
            prompt * length + length**2 / 2 for prompt, group in zip(prompts, answers, strict=True) for length in group
        )
        earlier += sum(prompt**2 / 2 for prompt in prompts)
        products = 2 * (self.weights + self.output) * sampled + 2 * self.weights * read
        attention = 4 * self.layers * self.heads * self.width * earlier
        cached = 2 * self.layers * self.cached_heads * self.width * earlier
        return products + attention, _FLOAT * ((self.weights + self.output) * sampled / rows + cached)


def _head_width(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _least(work: Callable[[], object]) -> float:
    """Seconds, the least of several."""

    def once() -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    return min(once() for _ in range(9))
