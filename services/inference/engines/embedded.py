"""The embedded engine: samples in batches from any causal model that transformers can load, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from core.types import FinishReason
from services.inference.encoding import encode_chat
from services.inference.engines.base import (
    MAX_ROWS,
    Completion,
    ModelMismatch,
    Prompt,
    PromptRefused,
    PromptTooLong,
    VocabularyDropout,
)
from services.inference.engines.decoder import Decoder, can_join, padded_width
from services.inference.engines.model_files import architecture, text_side
from services.inference.engines.sampling import Uniforms, draw
from services.inference.engines.vocabulary import kept_tokens, mask_of

_SHRINK = 0.75  # finished rows are dropped from a batch when less than this share of its rows is unfinished


@dataclass(slots=True)
class _Row:
    """One completion that is being sampled."""

    prompt: list[int]
    seed: int
    request: Prompt
    limit: int  # the most tokens that it may have
    mask: Tensor | None = None  # (V,), True at the tokens that it may have; None: all
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropy: float = 0.0


class _Batch:
    """Rows that are sampled together: their prompts have the same padded width, and each has `step` tokens so far."""

    def __init__(self, model: Any, ends: set[int], rows: list[_Row]) -> None:
        self._ends, self._rows, self.step = ends, rows, 0
        self.live = list(range(len(rows)))  # the indices of the unfinished rows
        device, self._decoder = model.device, Decoder(model)
        prompts = list(dict.fromkeys(tuple(row.prompt) for row in rows))
        index = {prompt: i for i, prompt in enumerate(prompts)}
        prompt_of_row = torch.tensor([index[tuple(row.prompt)] for row in rows])
        self._temperature = torch.tensor([row.request.sampling.temperature for row in rows], device=device)
        self._top_p = torch.tensor([row.request.sampling.top_p for row in rows], device=device)
        self._top_k = torch.tensor([row.request.sampling.top_k or 0 for row in rows], device=device)
        self._masks = _stacked_masks(rows)
        self._uniforms = Uniforms([row.seed for row in rows])
        self._logits = self._decoder.prefill([list(prompt) for prompt in prompts], prompt_of_row)

    def advance_to(self, step: int) -> None:
        """Sample until the batch is at `step` or later, or all its rows are finished."""
        while self.live and self.step < step:
            self._advance()

    def finish_all_but(self, live: int) -> None:
        """Sample until at most `live` rows are unfinished, and drop the finished ones."""
        while len(self.live) > live:
            self._advance()
        self._drop_finished()

    def _advance(self) -> None:
        """Give each live row its next token, and drop the finished rows if there are many."""
        uniforms = self._uniforms.at(self.step).to(self._logits.device)
        draws = draw(self._logits, uniforms, self._temperature, self._top_p, self._top_k, self._masks)
        tokens, logprobs, entropies = draws.tokens.tolist(), draws.logprobs.tolist(), draws.entropies.tolist()
        live = []
        for i in self.live:
            row = self._rows[i]
            row.tokens.append(tokens[i])
            row.logprobs.append(logprobs[i])
            row.entropy += entropies[i]
            if tokens[i] not in self._ends and len(row.tokens) < row.limit:
                live.append(i)
        self.live = live
        self.step += 1
        if not self.live:
            del self._decoder  # frees the keys and values
            return
        shrinks = len(self.live) < _SHRINK * len(self._rows)
        self._logits = self._decoder.step(draws.tokens[self._keep_live()] if shrinks else draws.tokens)

    def joined(self, other: _Batch) -> _Batch:
        """One batch with the live rows of both, which must be at the same step if both have any.

        Only the returned batch can be used afterwards.
        """
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
        self._top_k = torch.cat([self._top_k, other._top_k])
        self._masks = _stacked_masks(self._rows)
        return self

    def _drop_finished(self) -> None:
        if 0 < len(self.live) < len(self._rows):
            self._logits = self._logits[self._keep_live()]

    def _keep_live(self) -> Tensor:
        """Drop the finished rows, and return the indices (B,) that the others had before."""
        kept = torch.tensor(self.live)
        self._rows = [self._rows[i] for i in self.live]
        self.live = list(range(len(self._rows)))
        self._uniforms.keep(kept)
        kept = kept.to(self._logits.device)
        self._decoder.keep(kept)
        self._temperature, self._top_p, self._top_k = self._temperature[kept], self._top_p[kept], self._top_k[kept]
        self._masks = _stacked_masks(self._rows)
        return kept


def _stacked_masks(rows: Sequence[_Row]) -> Tensor | None:
    """The masks (B, V) of the rows; None if no row has one."""
    masks = [row.mask for row in rows if row.mask is not None]
    if not masks:
        return None
    whole = torch.ones_like(masks[0])
    return torch.stack([whole if row.mask is None else row.mask for row in rows])


class TransformersEngine:
    """Holds one model and samples from it. Not thread-safe: make one call at a time."""

    def __init__(self, folder: Path, device: str = "cpu", max_rows: int = MAX_ROWS, waiting_rows: int = 0) -> None:
        """The keys and values of at most `max_rows + waiting_rows` completions are in memory at once; see
        `generate`."""
        # On a CPU float32, which is reproducible; on a GPU bfloat16, which it computes fastest.
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        self.model = model.to(device).eval()
        self.max_rows = max_rows
        self._waiting_rows = waiting_rows if can_join(self.model) else 0
        self.tokenizer, self._ends = text_side(folder, self.model.generation_config)

    def load(self, folder: Path) -> None:
        """Replace weights, tokenizer and end tokens in place, after everything has been read and checked.

        Raises `ModelMismatch` if the architecture differs, or a tensor is missing, unknown or of another shape; the old
        model is then kept.
        """
        config, loaded = architecture(AutoConfig.from_pretrained(folder)), architecture(self.model.config)
        if config != loaded:
            differing = sorted(key for key in config.keys() | loaded.keys() if config.get(key) != loaded.get(key))
            raise ModelMismatch(
                f"{folder}: expected the loaded model's configuration, these settings differ: {', '.join(differing)}"
            )
        tokenizer, ends = text_side(folder)
        files = sorted(folder.glob("*.safetensors"))
        new = {name: tensor for file in files for name, tensor in load_file(file).items()}
        current = dict(self.model.state_dict())
        tied = set(self.model._tied_weights_keys or ()) if self.model.config.tie_word_embeddings else set()
        missing, unknown = current.keys() - new.keys() - tied, new.keys() - current.keys()
        reshaped = {name for name in new.keys() & current.keys() if new[name].shape != current[name].shape}
        if missing or unknown or reshaped:
            raise ModelMismatch(
                f"{folder}: expected the tensors of the loaded model: missing {sorted(missing)[:3]}, "
                f"unknown {sorted(unknown)[:3]}, of another shape {sorted(reshaped)[:3]}"
            )
        with torch.no_grad():
            for name, tensor in new.items():
                current[name].copy_(tensor)
        self.tokenizer, self._ends = tokenizer, ends

    def generate(self, prompts: Sequence[Prompt]) -> list[list[Completion]]:
        """Sample every prompt; result[i][j] is the j-th completion of prompts[i]. Raises what `check` raises."""
        groups = [self._make_rows(prompt) for prompt in prompts]
        masks = {dropout: self._mask(dropout) for prompt in prompts if (dropout := prompt.dropout) is not None}
        by_width: dict[int, list[_Row]] = {}
        for row in (row for group in groups for row in group):
            row.mask = masks[row.request.dropout] if row.request.dropout else None
            by_width.setdefault(padded_width(row.prompt), []).append(row)
        with torch.inference_mode():
            for rows in by_width.values():
                starts = range(0, len(rows), self.max_rows)
                batches = (_Batch(self.model, self._ends, rows[start : start + self.max_rows]) for start in starts)
                # A step takes almost as long for a few rows as for many. So the last `waiting_rows` unfinished rows of
                # a batch wait until the next batch has reached their step and has as few rows left. Then both continue
                # as one batch.
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
        return [[self._completion(row) for row in group] for group in groups]

    def check(self, prompt: Prompt) -> None:
        """Raise `PromptRefused` if the model's chat template refuses the messages, and `PromptTooLong` if they leave no
        room for an answer in the model's context."""
        self._make_rows(prompt)

    def _make_rows(self, prompt: Prompt) -> list[_Row]:
        try:
            ids = encode_chat(self.tokenizer, prompt.messages)
        except TemplateError as error:
            raise PromptRefused(f"messages: the model's chat_template refuses them: {error}") from error
        room = self.model.config.get_text_config().max_position_embeddings - len(ids)
        if room < 1:
            raise PromptTooLong(
                f"prompt of {len(ids)} tokens: expected fewer, because the model's context holds {len(ids) + room}"
            )
        limit = min(prompt.sampling.max_tokens, room)
        return [_Row(ids, prompt.seed + j, prompt, limit) for j in range(prompt.n)]

    def _mask(self, dropout: VocabularyDropout) -> Tensor:
        vocabulary = self.model.config.get_text_config().vocab_size
        return mask_of(dropout, vocabulary, kept_tokens(self.tokenizer) | self._ends).to(self.model.device)

    def _completion(self, row: _Row) -> Completion:
        tokens, logprobs = row.tokens, row.logprobs
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True)
        reason: FinishReason = "stop" if tokens[-1] in self._ends else "length"
        stops_found = [position for stop in row.request.stop if (position := text.find(stop)) >= 0]
        if stops_found:
            beginnings = (
                self.tokenizer.decode(tokens[:n], skip_special_tokens=True) for n in range(1, len(tokens) + 1)
            )
            count = next(n for n, part in enumerate(beginnings, 1) if any(stop in part for stop in row.request.stop))
            tokens, logprobs, text, reason = tokens[:count], logprobs[:count], text[: min(stops_found)], "stop"
        # The mean is over all sampled tokens, also those after a stop string: it describes the policy, not the text.
        entropy = row.entropy / len(row.tokens)
        return Completion(text, tuple(tokens), tuple(logprobs), reason, entropy, len(row.prompt))
