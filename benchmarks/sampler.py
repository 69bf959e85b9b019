"""Compares the embedded engine's sampling loop with transformers' `generate`, and with the limit of the processor.

Both sample the same prompts with the same settings and batch sizes, alternately in one run, on one thread. The limit is
a lower bound for the time. It is the time for the arithmetic of the tokens at the speed of a large matrix product, or
the time to read the weights and the cached keys and values at the speed of a copy, whichever is longer.
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
from core.settings.templates import RZERO_SOLVER
from core.settings.training import Sampling
from orchestrator.installation.home import MICRO_MODEL
from services.inference.engines.base import Prompt
from services.inference.engines.embedded import TransformersEngine
from trainers.micro import world

_FLOAT = 4  # bytes


@dataclass(frozen=True, slots=True)
class _Load:
    """What is sampled in a round: `votes` completions of at most `tokens` tokens per prompt, `rows` at once."""

    prompts: int
    votes: int
    tokens: int
    rows: int
    rounds: int


_TINY = [_Load(prompts=2 * rows // 8, votes=8, tokens=110, rows=rows, rounds=5) for rows in (64, 128, 256, 512)]
_SMOLLM2 = [_Load(prompts=rows // 8, votes=8, tokens=16, rows=rows, rounds=3) for rows in (64, 128)]


def run() -> dict[str, Any]:
    """{ratio, smollm2_ratio, share_of_limit, gflops, copied_gb_per_s, tiny, smollm2}.

    `tiny` and `smollm2` have the figures by the number of rows, and the ratios are geometric means of theirs.
    `share_of_limit` is that of the tiny model with the most rows. The figures of SmolLM2 are null if it is not
    installed.
    """
    disable_progress_bar()
    torch.set_num_threads(1)
    speeds = _Speeds.measured()
    tiny = {str(load.rows): _compare(MICRO_MODEL, load, speeds) for load in _TINY}
    smollm2 = None
    if (gguf := gguf_file()) is not None:
        with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder:
            write_smollm2(gguf, Path(folder))
            smollm2 = {str(load.rows): _compare(Path(folder), load, speeds) for load in _SMOLLM2}
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


def _compare(folder: Path, load: _Load, speeds: _Speeds) -> dict[str, Any]:
    engine = TransformersEngine(folder, max_rows=load.rows, waiting_rows=load.rows // 2)
    rng, sampling = random.Random(0), Sampling(top_p=1.0, max_tokens=load.tokens)
    questions = [world.make_problem(rng).text for _ in range(load.prompts)]
    prompts = [
        Prompt(tuple(RZERO_SOLVER.messages(question)), 1000 * index, load.votes, sampling)
        for index, question in enumerate(questions)
    ]
    _sample_with_engine(engine, prompts)  # warm up
    rates = [
        (
            _rate(lambda: _sample_with_engine(engine, prompts)),
            _rate(lambda: _sample_with_transformers(engine, prompts)),
        )
        for _ in range(load.rounds)
    ]
    engine_rate, library_rate = (statistics.median(column) for column in zip(*rates, strict=True))
    prompt_lengths = [
        len(engine.tokenizer.apply_chat_template(list(prompt.messages), add_generation_prompt=True)["input_ids"])
        for prompt in prompts
    ]
    lengths = [[len(completion.tokens) for completion in group] for group in engine.generate(prompts)]
    least_seconds, limit = speeds.limit(*_Size.of(engine.model).work(prompt_lengths, lengths, load.rows))
    return {
        "ratio": round(statistics.median(ours / theirs for ours, theirs in rates), 2),
        "tokens_per_s": round(engine_rate),
        "generate_tokens_per_s": round(library_rate),
        "limit": limit,
        "share_of_limit": round(engine_rate * least_seconds / sum(map(sum, lengths)), 3),
    }


def _rate(sample: Callable[[], int]) -> float:
    """Tokens per second."""
    start = time.perf_counter()
    return sample() / (time.perf_counter() - start)


def _sample_with_engine(engine: TransformersEngine, prompts: Sequence[Prompt]) -> int:
    """Sample with the embedded engine, and return the number of tokens."""
    return sum(len(completion.tokens) for group in engine.generate(prompts) for completion in group)


def _sample_with_transformers(engine: TransformersEngine, prompts: Sequence[Prompt]) -> int:
    """Sample the engine's model with transformers' `generate`, and return the number of tokens."""
    engine.tokenizer.padding_side = "left"
    encoded = engine.tokenizer.apply_chat_template(
        [list(prompt.messages) for prompt in prompts for _ in range(prompt.n)],
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
        padding=True,
    )
    count, max_tokens = 0, prompts[0].sampling.max_tokens
    for start in range(0, len(encoded["input_ids"]), engine.max_rows):
        batch = {name: tensor[start : start + engine.max_rows] for name, tensor in encoded.items()}
        sequences = engine.model.generate(**batch, do_sample=True, top_k=0, max_new_tokens=max_tokens)
        answers = sequences[:, batch["input_ids"].shape[1] :]
        count += int((answers != engine.tokenizer.pad_token_id).sum())
    return count


@dataclass(frozen=True, slots=True)
class _Speeds:
    """What one thread of this machine can do per second."""

    flops: float  # floating-point operations, in a large matrix product
    bytes: float  # bytes read, in a copy that is too large for any cache

    @classmethod
    def measured(cls) -> _Speeds:
        a, b, large = torch.randn(1024, 1024), torch.randn(1024, 1024), torch.randn(64 << 20)
        return cls(
            2 * 1024**3 / _shortest_seconds(lambda: a @ b), _FLOAT * large.numel() / _shortest_seconds(large.clone)
        )

    def limit(self, flops: float, bytes_read: float) -> tuple[float, str]:
        """The shortest possible seconds for these operations and bytes, and which of the two takes longer."""
        return max((flops / self.flops, "arithmetic"), (bytes_read / self.bytes, "memory"))


@dataclass(frozen=True, slots=True)
class _Size:
    """The sizes of a model that determine the work per token."""

    weights: int  # parameters that every token is multiplied with: all but the embeddings and the output head
    output: int  # parameters of the output head
    layers: int
    heads: int
    cached_heads: int  # heads with keys and values in the cache
    width: int  # of a head

    @classmethod
    def of(cls, model: Any) -> _Size:
        config, excluded = model.config, ("embed_tokens", "lm_head")
        return cls(
            weights=sum(
                parameter.numel()
                for name, parameter in model.named_parameters()
                if not any(part in name for part in excluded)
            ),
            output=config.vocab_size * config.hidden_size,
            layers=config.num_hidden_layers,
            heads=config.num_attention_heads,
            cached_heads=config.num_key_value_heads,
            width=_head_width(config),
        )

    def work(self, prompts: Sequence[int], answers: Sequence[Sequence[int]], rows: int) -> tuple[float, float]:
        """The minimum of operations and bytes read, for prompts and answers of these lengths in tokens.

        Each prompt is processed once. Each weight takes a multiplication and an addition per token, and attention takes
        two of both for each earlier token, head and element. All weights are read once for every `rows` tokens of the
        answers, and the cached keys and values of all earlier tokens once for each token.
        """
        answer_tokens, prompt_tokens = sum(map(sum, answers)), sum(prompts)
        earlier = sum(
            prompt * length + length**2 / 2 for prompt, group in zip(prompts, answers, strict=True) for length in group
        )
        earlier += sum(prompt**2 / 2 for prompt in prompts)
        products = 2 * (self.weights + self.output) * answer_tokens + 2 * self.weights * prompt_tokens
        attention = 4 * self.layers * self.heads * self.width * earlier
        cached = 2 * self.layers * self.cached_heads * self.width * earlier
        return products + attention, _FLOAT * ((self.weights + self.output) * answer_tokens / rows + cached)


def _head_width(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _shortest_seconds(work: Callable[[], object]) -> float:
    """The shortest of nine measurements of `work`."""

    def once() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return min(once() for _ in range(9))
