"""Reads a model folder: its architecture, its tokenizer, and the tokens that end an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, GenerationConfig


def text_side(folder: Path, generation: Any = None) -> tuple[Any, set[int]]:
    """The tokenizer and the end tokens of the model in `folder`.

    `generation` is the folder's generation configuration, if the caller has loaded it already.
    """
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    ends = (generation or GenerationConfig.from_pretrained(folder)).eos_token_id
    return tokenizer, {tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}


# Keys of a model's configuration that do not affect what the model computes.
_NOT_ARCHITECTURE = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache", "eos_token_id"}


def architecture(config: Any) -> dict[str, Any]:
    """The part of a model's configuration that determines what the model computes."""
    return {name: value for name, value in config.to_dict().items() if name not in _NOT_ARCHITECTURE}
