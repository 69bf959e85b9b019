"""Whether a folder has a whole Hugging Face model: configuration, weights, tokenizer and chat template."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from orchestrator.doctor.result import CheckFailed, Finding, Subject, ok, skipped
from orchestrator.needs import base_model
from orchestrator.sizing import SizingError
from orchestrator.sizing.shapes import shape_of

_LARGEST_HEADER = 100 * 2**20  # bytes, safetensors' own limit


def check_model(subject: Subject) -> Finding:
    """Whether the preset's base model is whole. What `coevo run` itself requires is not repeated here."""
    if subject.config is None:
        return skipped("no preset is given")
    folder = base_model(subject.config)
    if not (folder / "config.json").is_file():
        return skipped(f"{folder} has no model; see the line about settings")
    remedy = f"download the model again into {folder}"
    tensors = dict(_tensors(folder))
    if missing := sorted(_named_shards(folder) - {path.name for path in folder.glob("*.safetensors")}):
        raise CheckFailed(f"base_model: {folder}: shards are missing: {', '.join(missing)}", remedy)
    parameters = sum(prod(tensor["shape"]) for tensor in tensors.values())
    if (expected := _expected(subject.config.base_model)) is not None and parameters < expected:
        raise CheckFailed(
            f"base_model: {folder}: expected {expected:,} parameters, its files have {parameters:,}", remedy
        )
    _refuse_no_chat(folder, remedy)
    dtypes = ", ".join(sorted({tensor["dtype"] for tensor in tensors.values()}))
    return ok(f"{folder}: {parameters:,} parameters in {dtypes}, with tokenizer and chat template")


def _expected(name: str) -> int | None:
    """The parameters that a model of this shape has at least; None if the shape is not one that coevo knows."""
    try:
        return shape_of(name)[0].parameters
    except SizingError:
        return None


def _named_shards(folder: Path) -> set[str]:
    """The files of weights that the model's index names; none if it has no index, since then it has one file."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return set()
    try:
        return set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError) as error:
        raise CheckFailed(f"base_model: {index} is not an index of shards: {error!r}", "download it again") from error


def _tensors(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name, `dtype` and `shape` of every tensor, from the files' headers. Raises `CheckFailed` if a file is cut off."""
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with file.open("rb") as content:
                (length,) = struct.unpack("<Q", content.read(8))
                header: dict[str, Any] = json.loads(content.read(min(length, _LARGEST_HEADER)))
            header.pop("__metadata__", None)
            end = 8 + length + max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
        except (OSError, struct.error, ValueError, KeyError) as error:
            raise CheckFailed(
                f"base_model: {file} is not a safetensors file: {error!r}", "download it again"
            ) from error
        if (size := file.stat().st_size) < end:
            raise CheckFailed(
                f"base_model: {file} is cut off: expected {end:,} bytes, got {size:,}", "download it again"
            )
        yield from header.items()


def _refuse_no_chat(folder: Path, remedy: str) -> None:
    """Raise `CheckFailed` unless the folder has a tokenizer with a chat template and an end token."""
    from transformers import AutoTokenizer  # imported here, because it takes seconds to import

    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise CheckFailed(f"base_model: {folder} has no tokenizer: expected a tokenizer.json", remedy)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise CheckFailed(
            f"base_model: {folder}: its tokenizer cannot be loaded: {str(error).splitlines()[0]}", remedy
        ) from error
    if tokenizer.chat_template is None:
        raise CheckFailed(
            f"base_model: {folder}: its tokenizer has no chat template",
            f"put a chat_template.jinja into {folder}, for example from the model's instruct version",
        )
    if tokenizer.eos_token_id is None:
        raise CheckFailed(
            f"base_model: {folder}: its tokenizer has no end token", "set eos_token in tokenizer_config.json"
        )
