"""What a model's parameters and its KV cache come to, from its shape alone."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from core.errors import CoevoError
from core.settings.parsing import ConfigError, validated
from core.texts.unicode import from_json
from core.validation.bounds import Positive
from trainers.micro.bases import BASES


class SizingError(CoevoError):
    """What cannot be sized; the message names the setting."""


class Shape(BaseModel):
    """A dense decoder as Qwen2, Qwen3 and Llama have it; the names are those of its config.json."""

    model_config = ConfigDict(frozen=True)

    hidden_size: Positive
    num_hidden_layers: Positive
    intermediate_size: Positive
    num_attention_heads: Positive
    num_key_value_heads: Positive | None = None  # None: as many as attention heads
    head_dim: Positive | None = None
    vocab_size: Positive
    tie_word_embeddings: bool = False
    max_position_embeddings: Positive = 32768
    normed_heads: bool = False  # Qwen3: a norm each of queries and keys
    attention_bias: bool = False  # Qwen2: of queries, keys and values

    @property
    def embedding(self) -> int:
        """Parameters before the first layer and after the last."""
        return self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)

    @property
    def outside(self) -> int:
        """Parameters outside the layers: embeddings and the last norm."""
        return self.embedding + self.hidden_size

    @property
    def layer(self) -> int:
        """Parameters of one layer."""
        head = self.head_dim or self.hidden_size // self.num_attention_heads
        wide, narrow = self.num_attention_heads * head, (self.num_key_value_heads or self.num_attention_heads) * head
        norms = 2 * self.hidden_size + (2 * head if self.normed_heads else 0)
        bias = wide + 2 * narrow if self.attention_bias else 0
        return self.hidden_size * (2 * (wide + narrow) + 3 * self.intermediate_size) + norms + bias

    def adapters(self, rank: int) -> int:
        """Parameters that LoRA adds to all linear layers but the head."""
        head = self.head_dim or self.hidden_size // self.num_attention_heads
        wide, narrow = self.num_attention_heads * head, (self.num_key_value_heads or self.num_attention_heads) * head
        ends = 4 * self.hidden_size + 2 * (wide + narrow) + 3 * (self.hidden_size + self.intermediate_size)
        return rank * self.num_hidden_layers * ends

    @property
    def parameters(self) -> int:
        return self.outside + self.num_hidden_layers * self.layer

    def kv_bytes(self, width: int = 2) -> int:
        """Bytes of the KV cache a token, in numbers of `width` bytes."""
        head = self.head_dim or self.hidden_size // self.num_attention_heads
        return 2 * self.num_hidden_layers * (self.num_key_value_heads or self.num_attention_heads) * head * width


def _published(hidden: int, layers: int, inside: int, heads: int, kv_heads: int = 8, **others: int | bool) -> Shape:
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": inside, "head_dim": 128}
    sizes |= {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": 151936}
    return Shape.model_validate({**sizes, **others})


# As published with the models; OctoThinker goes on from Llama 3.2 3B and Llama 3.1 8B.
PUBLISHED = {
    "Qwen3-0.6B": _published(1024, 28, 3072, 16, tie_word_embeddings=True, normed_heads=True),
    "Qwen3-1.7B": _published(2048, 28, 6144, 16, tie_word_embeddings=True, normed_heads=True),
    "Qwen3-4B": _published(2560, 36, 9728, 32, tie_word_embeddings=True, normed_heads=True),
    "Qwen3-8B": _published(4096, 36, 12288, 32, normed_heads=True),
    "Qwen2.5-3B": _published(2048, 36, 11008, 16, 2, tie_word_embeddings=True, attention_bias=True),
    "Qwen2.5-Math-7B": _published(
        3584, 28, 18944, 28, 4, attention_bias=True, vocab_size=152064, max_position_embeddings=4096
    ),
    "OctoThinker-3B": _published(3072, 28, 8192, 24, tie_word_embeddings=True, vocab_size=128256),
    "OctoThinker-8B": _published(4096, 32, 14336, 32, vocab_size=128256),
}
_KNOWN = ("llama", "qwen2", "qwen3")


def shape_of(base_model: str) -> Shape:
    """The base model's shape: its config.json's, or the one above where that is not here. Raises `SizingError`."""
    tiny = BASES.get(base_model)
    folder = tiny.model if tiny else Path(base_model)
    file = folder / "config.json"
    if not file.is_file():
        for name, shape in PUBLISHED.items():
            if folder.name.startswith(name):
                return shape
        raise SizingError(
            f"base_model: expected a folder with a model's config.json, got {folder}, which has none. Without the "
            f"folder, only models are known whose names begin with {', '.join(PUBLISHED)}"
        )
    try:
        tree = from_json(file.read_bytes())
    except (OSError, ValueError) as error:
        raise SizingError(f"base_model: cannot read {file}: {error}") from error
    kind = tree.get("model_type") if isinstance(tree, dict) else None
    if kind not in _KNOWN:
        expected = ", ".join(_KNOWN)
        raise SizingError(f"base_model: {file}: model_type: expected one of {expected}, got {repr(kind)[:100]}")
    try:
        own = {"normed_heads": kind == "qwen3", "attention_bias": kind == "qwen2"}
        return validated(Shape, {**tree, **own}, f"base_model: {file}")
    except ConfigError as error:
        raise SizingError(str(error)) from error
