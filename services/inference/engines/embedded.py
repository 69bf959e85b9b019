"""The embedded engine: batched sampling from any causal model that transformers can load, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from core.types import FinishReason
from services.inference.engines.base import MAX_ROWS, Completion, ModelMismatch, Prompt, PromptTooLong
from services.inference.engines.decoder import Decoder, can_join, padded_width
from services.inference.engines.model_files import architecture, text_side
from services.inference.engines.sampling import Draw, Uniforms, draw

_SHRINK = 0.75  # finished rows leave the batch when fewer than this share are live


@dataclass(slots=True)
class _Row:
    """One completion under way."""

    prompt: list[int]
    seed: int
    request: Prompt
    limit: int  # tokens it may have
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropy: float = 0.0


class _Batch:
    """Rows whose prompts have one padded width and that have the same number of tokens, `step`."""

    def __init__(self, model: Any, ends: set[int], rows: list[_Row]) -> None:
        self._ends, self._rows, self.step = ends, rows, 0
        self.live = list(range(len(rows)))  # the indices of the rows that are not finished
        device, self._decoder = model.device, Decoder(model)
        unique = {tuple(row.prompt): None for row in rows}
        index = {prompt: i for i, prompt in enumerate(unique)}
        source = torch.tensor([index[tuple(row.prompt)] for row in rows])
        self._temperature = torch.tensor([row.request.sampling.temperature for row in rows], device=device)
        self._top_p = torch.tensor([row.request.sampling.top_p for row in rows], device=device)
        self._uniforms = Uniforms([row.seed for row in rows])
        self._logits = self._decoder.prefill([list(prompt) for prompt in unique], source)

    def advance_to(self, step: int) -> None:
        """Sample until the batch is at `step` or later, or all its rows are finished."""
        while self.live and self.step < step:
            self._advance()

    def finish_all_but(self, live: int) -> None:
        """Sample until at most `live` rows are unfinished, and drop the others."""
        while len(self.live) > live:
            self._advance()
        self._drop_finished()

    def _advance(self) -> None:
        """Give each live row its next token. Finished rows leave when they are many."""
        uniforms = self._uniforms.at(self.step).to(self._logits.device)
        drawn = draw(self._logits, uniforms, self._temperature, self._top_p)
        self._append(drawn)
        self.step += 1
        if not self.live:
            del self._decoder  # and with it the keys and values
            return
        tokens = drawn.tokens
        if len(self.live) < _SHRINK * len(self._rows):
            tokens = tokens[self._keep_live()]
        self._logits = self._decoder.step(tokens)

    def joined(self, other: _Batch) -> _Batch:
        """The live rows of both batches, which are at one step if both have any. Neither can be used afterwards."""
        if not (self.live and other.live):
            return self if self.live else other
        for batch in (self, other):
            batch._drop_finished()
        self._decoder.join(other._decoder)
        self._uniforms.join(other._uniforms)
        self._rows += other._rows
        self.live = list(range(len(self._rows)))
        self._logits = torch.cat([self._logits, other._logits])
        self._temperature = torch.cat([self._temperature, other._temperature])
        self._top_p = torch.cat([self._top_p, other._top_p])
        return self

    def _drop_finished(self) -> None:
        if 0 < len(self.live) < len(self._rows):
            self._logits = self._logits[self._keep_live()]

    def _keep_live(self) -> Tensor:
        """Drop the finished rows; the indices that the others had (B,)."""
        kept = torch.tensor(self.live)
        self._rows = [self._rows[i] for i in self.live]
        self.live = list(range(len(self._rows)))
        self._uniforms.keep(kept)
        kept = kept.to(self._logits.device)
        self._decoder.keep(kept)
        self._temperature, self._top_p = self._temperature[kept], self._top_p[kept]
        return kept

    def _append(self, drawn: Draw) -> None:
        tokens, logprobs, entropies = drawn.tokens.tolist(), drawn.logprobs.tolist(), drawn.entropies.tolist()
        live = []
        for i in self.live:
            row, token = self._rows[i], tokens[i]
            row.tokens.append(token)
            row.logprobs.append(logprobs[i])
            row.entropy += entropies[i]
            if token not in self._ends and len(row.tokens) < row.limit:
                live.append(i)
        self.live = live


class TransformersEngine:
    """Holds one model. Not thread-safe: one call at a time."""

    def __init__(self, folder: Path, device: str = "cpu", max_rows: int = MAX_ROWS, waiting_rows: int = 0) -> None:
        """At most `max_rows + waiting_rows` completions have their keys and values in memory at once; see `_run`."""
        # bfloat16 where the hardware is made for it; on a CPU, float32 and reproducible
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        self.model = model.to(device).eval()
        self.max_rows = max_rows
        self._waiting_rows = waiting_rows if can_join(self.model) else 0
        self.tokenizer, self._ends = text_side(folder, self.model.generation_config)

    def load(self, folder: Path) -> None:
        """Replace weights, tokenizer and end tokens in place. All is read and checked before anything is changed.

        Raises `ModelMismatch` when the architecture differs, or a tensor is missing, unknown or of another shape.
        """
        config, loaded = architecture(AutoConfig.from_pretrained(folder)), architecture(self.model.config)
        if config != loaded:
            differ = sorted(k for k in config.keys() | loaded.keys() if config.get(k) != loaded.get(k))
            raise ModelMismatch(f"{folder}: its config is not the loaded model's: {', '.join(differ)} differ")
        tokenizer, ends = text_side(folder)
        files = sorted(folder.glob("*.safetensors"))
        new = {name: tensor for file in files for name, tensor in load_file(file).items()}
        own = dict(self.model.state_dict())
        tied = set(self.model._tied_weights_keys or ()) if self.model.config.tie_word_embeddings else set()
        missing, unknown = own.keys() - new.keys() - tied, new.keys() - own.keys()
        shapes = {name for name in new.keys() & own.keys() if new[name].shape != own[name].shape}
        if missing or unknown or shapes:
            raise ModelMismatch(
                f"{folder}: weights do not fit the loaded model: missing {sorted(missing)[:3]}, "
                f"unknown {sorted(unknown)[:3]}, of another shape {sorted(shapes)[:3]}"
            )
        with torch.no_grad():
            for name, tensor in new.items():
                own[name].copy_(tensor)
        self.tokenizer, self._ends = tokenizer, ends

    def generate(self, prompts: Sequence[Prompt]) -> list[list[Completion]]:
        """Sample every prompt; out[i][j] is the j-th completion of prompts[i]. Raises `PromptTooLong`."""
        rows = [self._rows_of(prompt) for prompt in prompts]
        by_width: dict[int, list[_Row]] = {}
        for row in (row for group in rows for row in group):
            by_width.setdefault(padded_width(row.prompt), []).append(row)
        with torch.inference_mode():
            for same_width in by_width.values():
                self._run(same_width)
        return [[self._completion(row) for row in group] for group in rows]

    def check(self, prompt: Prompt) -> None:
        """Raise `PromptTooLong` when `prompt` leaves no room for an answer."""
        self._rows_of(prompt)

    def _rows_of(self, prompt: Prompt) -> list[_Row]:
        encoded: Any = self.tokenizer.apply_chat_template(
            list(prompt.messages), add_generation_prompt=True, return_dict=True
        )
        ids: list[int] = encoded["input_ids"]
        room = self.model.config.max_position_embeddings - len(ids)
        if room < 1:
            raise PromptTooLong(f"prompt of {len(ids)} tokens: the context holds {len(ids) + room}")
        limit = min(prompt.sampling.max_tokens, room)
        return [_Row(ids, prompt.seed + j, prompt, limit) for j in range(prompt.n)]

    def _run(self, rows: list[_Row]) -> None:
        """Sample `rows`, whose prompts have one padded width, `max_rows` of them at once.

        A step takes almost as long for a few rows as for many. The last `waiting_rows` of a batch therefore wait until
        the next batch has come to their step and has as few rows left, and both go on as one.
        """
        starts = range(0, len(rows), self.max_rows)
        batches = (_Batch(self.model, self._ends, rows[start : start + self.max_rows]) for start in starts)
        waiting = next(batches)
        waiting.finish_all_but(self._waiting_rows)
        for batch in batches:
            if waiting.live:
                batch.advance_to(waiting.step)
            batch.finish_all_but(self._waiting_rows)
            waiting.advance_to(batch.step)
            waiting = batch.joined(waiting)
            waiting.finish_all_but(self._waiting_rows)
        waiting.finish_all_but(0)

    def _completion(self, row: _Row) -> Completion:
        tokens, logprobs = row.tokens, row.logprobs
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True)
        reason: FinishReason = "stop" if tokens[-1] in self._ends else "length"
        cuts = [at for stop in row.request.stop if (at := text.find(stop)) >= 0]
        if cuts:
            count = next(n for n in range(1, len(tokens) + 1) if self._holds_stop(tokens[:n], row.request.stop))
            tokens, logprobs, text, reason = tokens[:count], logprobs[:count], text[: min(cuts)], "stop"
        # the mean is over what was sampled, stop strings or not: entropy is the policy's, not the text's
        return Completion(text, tuple(tokens), tuple(logprobs), reason, row.entropy / len(row.tokens))

    def _holds_stop(self, tokens: list[int], stops: tuple[str, ...]) -> bool:
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return any(stop in text for stop in stops)
