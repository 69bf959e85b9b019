"""What every inference engine can do, so that callers need not know which one answers.

An engine holds one model and samples from it. The embedded one is `services.inference.engines.embedded`; others
(vLLM) fit in behind the same protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from core.settings.training import Sampling
from core.types import FinishReason

# Of the embedded engine: the completions that it samples together, and, where it serves, those that may wait for others
MAX_ROWS, WAITING_ROWS = 512, 256


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt and how many completions it gets; the j-th is drawn with `seed + j`, as vLLM does.

    A completion is a function of (weights, messages, seed, sampling): not of what else is in the batch, nor of which
    replica answers. That is what makes a resumed run equal an uninterrupted one.
    """

    messages: tuple[dict[str, str], ...]
    seed: int
    n: int
    sampling: Sampling
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled completion."""

    text: str
    tokens: tuple[int, ...]  # as sampled; the end token is included when it was sampled
    logprobs: tuple[float, ...]  # nats, of each token under the softmax at the sampling temperature, before top-p
    finish_reason: FinishReason
    mean_entropy: float  # nats a token, exact: over the full distribution at the sampling temperature, before top-p


class PromptTooLong(ValueError):
    """A prompt leaves no room for an answer within the model's context."""


class ModelMismatch(ValueError):
    """A folder's model does not fit into the one that is loaded."""


class Engine(Protocol):
    """A model that samples."""

    def load(self, folder: Path) -> None:
        """Replace the model by the one in `folder`, of the same architecture; its tokenizer may be another.

        Raises `ModelMismatch` and leaves the old one when it does not fit.
        """

    def generate(self, prompts: Sequence[Prompt]) -> list[list[Completion]]:
        """Sample every prompt; out[i][j] is the j-th completion of prompts[i]. Raises what `check` raises."""

    def check(self, prompt: Prompt) -> None:
        """Raise `PromptTooLong` when `prompt` leaves no room for an answer within the model's context."""
