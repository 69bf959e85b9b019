"""What a model's parameters and its KV cache come to, from its shape alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from core.errors import CoevoError
from core.settings.bounds import Positive
from core.settings.parsing import ConfigError, validated
from core.unicode import from_json
from trainers.micro.bases import BASES


class SizingError(CoevoError):
    """What cannot be sized; the message names the setting."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A dense decoder as Qwen2, Qwen3 and Llama have it; the names are those of its config.json."""

    hidden_size: int
    num_hidden_layers: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool
    normed_heads: bool = False  # Qwen3: a norm each of queries and keys
    attention_bias: bool = False  # Qwen2: of queries, keys and values
    max_position_embeddings: int = 32768

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
        wide, narrow = (n * self.head_dim for n in (self.num_attention_heads, self.num_key_value_heads))
        attention = self.hidden_size * 2 * (wide + narrow)
        norms = 2 * self.hidden_size + (2 * self.head_dim if self.normed_heads else 0)
        bias = wide + 2 * narrow if self.attention_bias else 0
        return attention + 3 * self.hidden_size * self.intermediate_size + norms + bias

    @property
    def parameters(self) -> int:
        return self.outside + self.num_hidden_layers * self.layer

    def kv_bytes(self, width: int = 2) -> int:
        """Bytes of the KV cache a token, in numbers of `width` bytes."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim * width


def _qwen3(hidden: int, layers: int, intermediate: int, heads: int, *, tied: bool) -> Shape:
    return Shape(hidden, layers, intermediate, heads, 8, 128, 151936, tied, normed_heads=True)


# As published with the models; OctoThinker goes on from Llama 3.2 3B and Llama 3.1 8B.
PUBLISHED = {
    "Qwen3-0.6B": _qwen3(1024, 28, 3072, 16, tied=True),
    "Qwen3-1.7B": _qwen3(2048, 28, 6144, 16, tied=True),
    "Qwen3-4B": _qwen3(2560, 36, 9728, 32, tied=True),
    "Qwen3-8B": _qwen3(4096, 36, 12288, 32, tied=False),
    "Qwen2.5-3B": Shape(2048, 36, 11008, 16, 2, 128, 151936, True, attention_bias=True),
    "Qwen2.5-Math-7B": Shape(3584, 28, 18944, 28, 4, 128, 152064, False, False, True, 4096),
    "OctoThinker-3B": Shape(3072, 28, 8192, 24, 8, 128, 128256, True),
    "OctoThinker-8B": Shape(4096, 32, 14336, 32, 8, 128, 128256, False),
}
_NORMED_HEADS = {"llama": False, "qwen2": False, "qwen3": True}


def shape_of(base_model: str) -> tuple[Shape, str]:
    """The base model's shape, and where it is from: its config.json, or the table above where that is not here.

    Raises `SizingError`.
    """
    tiny = BASES.get(base_model)
    folder = tiny.model if tiny else Path(base_model)
    file = folder / "config.json"
    if file.is_file():
        return _read(file), f"{base_model}: the shipped model" if tiny else f"{base_model}: its config.json"
    for name, shape in PUBLISHED.items():
        if folder.name.startswith(name):
            return shape, f"{folder.name}: published shape of {name} ({base_model} has no config.json here)"
    raise SizingError(
        f"base_model: expected a folder with a model's config.json, got {folder}, which has none. Without the folder, "
        f"only models are known whose names begin with {', '.join(PUBLISHED)}"
    )


class _Config(BaseModel):
    """What is read of a config.json, which may be that of a stranger's model."""

    hidden_size: Positive
    num_hidden_layers: Positive
    intermediate_size: Positive
    num_attention_heads: Positive
    num_key_value_heads: Positive | None = None
    head_dim: Positive | None = None
    vocab_size: Positive
    tie_word_embeddings: bool = False
    max_position_embeddings: Positive


def _read(file: Path) -> Shape:
    try:
        tree = from_json(file.read_bytes())
    except (OSError, ValueError) as error:
        raise SizingError(f"base_model: cannot read {file}: {error}") from error
    kind = tree.get("model_type") if isinstance(tree, dict) else None
    if not isinstance(kind, str) or kind not in _NORMED_HEADS:
        expected = ", ".join(_NORMED_HEADS)
        raise SizingError(f"base_model: {file}: model_type: expected one of {expected}, got {repr(kind)[:100]}")
    try:
        config = validated(_Config, tree, f"base_model: {file}")
    except ConfigError as error:
        raise SizingError(str(error)) from error
    heads = config.num_attention_heads
    return Shape(
        config.hidden_size,
        config.num_hidden_layers,
        config.intermediate_size,
        heads,
        config.num_key_value_heads or heads,
        config.head_dim or config.hidden_size // heads,
        config.vocab_size,
        config.tie_word_embeddings,
        normed_heads=_NORMED_HEADS[kind],
        attention_bias=kind == "qwen2",
        max_position_embeddings=config.max_position_embeddings,
    )
