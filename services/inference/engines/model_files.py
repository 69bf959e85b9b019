"""What a model's folder says: what it computes, its tokenizer, and the tokens that end an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, GenerationConfig


def text_side(folder: Path, generation: Any = None) -> tuple[Any, set[int]]:
    """The tokenizer and the end tokens; `generation` is the folder's generation configuration where it is loaded."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    ends = (generation or GenerationConfig.from_pretrained(folder)).eos_token_id
    return tokenizer, {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}


# What a config says of where it came from and how it is run, not of what the model computes.
_INCIDENTAL = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache", "eos_token_id"}


def architecture(config: Any) -> dict[str, Any]:
    return {name: value for name, value in config.to_dict().items() if name not in _INCIDENTAL}
