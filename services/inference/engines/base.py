"""The prompts that an inference engine is asked, its completions, and its refusals.

An engine holds one model and samples from it: the embedded one (`services.inference.engines.embedded`), or vLLM's,
which is used through Ray's own server (`services.inference.vllm`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from core.settings.training import Sampling
from core.types import FinishReason
from core.validation.bounds import Seed

# Defaults of the embedded engine: the most completions that it samples together, and how many more an application keeps
# in memory while they wait for the next batch.
MAX_ROWS, WAITING_ROWS = 512, 256


class VocabularyDropout(BaseModel):
    """A random mask over the vocabulary: which tokens may be drawn (`services.inference.engines.vocabulary`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    retention: float = Field(gt=0, le=1)  # the probability with which a token stays
    seed: Seed


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt and the number `n` of its completions; the j-th is drawn with `seed + j`, as vLLM does.

    On a CPU, a completion depends only on the weights and the prompt, and not on the rest of the batch or on the
    replica that answers. So a resumed run gives the same result as an uninterrupted one. On a GPU, sums are not
    reproducible.
    """

    messages: tuple[dict[str, str], ...]
    seed: int
    n: int
    sampling: Sampling
    stop: tuple[str, ...] = ()
    dropout: VocabularyDropout | None = None  # all n completions share the mask


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled completion."""

    text: str
    tokens: tuple[int, ...]  # as sampled; the end token is included when it was sampled
    logprobs: tuple[float, ...]  # nats, one per token: at the sampling temperature, before mask, top-k and top-p
    finish_reason: FinishReason
    mean_entropy: float  # nats per token, exact: over the whole vocabulary, before mask, top-k and top-p
    prompt_tokens: int = 0


class PromptRefused(ValueError):
    """Raised when a model cannot be asked a prompt."""


class PromptTooLong(PromptRefused):
    """Raised when a prompt leaves no room for an answer in the model's context."""


class ModelMismatch(ValueError):
    """Raised when a folder's model cannot replace the loaded model, because it has another structure."""
