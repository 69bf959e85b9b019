"""Whether a folder has a whole Hugging Face model: configuration, weights, tokenizer and chat template."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

from pydantic import BaseModel, NonNegativeInt, TypeAdapter, ValidationError

from core.types import TINY_BASES
from core.unicode import from_json
from core.validation import fault_of
from orchestrator.check.machine.result import CheckFailed, Finding, Subject, ok, skipped
from orchestrator.check.needs import base_model
from orchestrator.check.size.shapes import SizingError, shape_of


class _Tensor(BaseModel):
    """A tensor in the header of a safetensors file."""

    dtype: str
    shape: list[NonNegativeInt]
    data_offsets: tuple[NonNegativeInt, NonNegativeInt]


class _Index(BaseModel):
    weight_map: dict[str, str]  # tensor -> file


_HEADER: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_LARGEST_HEADER = 100 * 2**20  # bytes, safetensors' own limit


def check_model(subject: Subject) -> Finding:
    """Whether the preset's base model is whole. What a start requires of it is not repeated here."""
    if subject.config is None or subject.config.base_model in TINY_BASES:
        return skipped("it is shipped with coevo")
    folder = base_model(subject.config)
    if not (folder / "config.json").is_file():
        return skipped(f"{folder} has no model")  # which keeps the run from starting
    remedy = f"download the model again into {folder}"
    tensors = dict(_tensors(folder))
    if missing := sorted(_named_shards(folder) - {path.name for path in folder.glob("*.safetensors")}):
        raise CheckFailed(f"base_model: {folder}: shards are missing: {', '.join(missing)}", remedy)
    parameters, expected = sum(prod(tensor.shape) for tensor in tensors.values()), 0
    with suppress(SizingError):  # a shape that coevo does not know
        expected = shape_of(subject.config.base_model).parameters
    if parameters < expected:
        raise CheckFailed(
            f"base_model: {folder}: expected {expected:,} parameters, its files have {parameters:,}", remedy
        )
    _refuse_no_chat(folder, remedy)
    dtypes = ", ".join(sorted({tensor.dtype for tensor in tensors.values()}))
    return ok(f"{folder}: {parameters:,} parameters in {dtypes}, with tokenizer and chat template")


def _named_shards(folder: Path) -> set[str]:
    """The files of weights that the model's index names; none if it has no index, since then it has one file."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return set()
    try:
        return set(_Index.model_validate(from_json(index.read_bytes())).weight_map.values())
    except (OSError, ValueError) as error:
        raise CheckFailed(
            f"base_model: {index} is not an index of shards: {_first_line(error)}", "download it again"
        ) from error


def _tensors(folder: Path) -> Iterator[tuple[str, _Tensor]]:
    """Every tensor by its name, from the files' headers. Raises `CheckFailed` for a file that has none or is cut
    off."""
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with file.open("rb") as content:
                (length,) = struct.unpack("<Q", content.read(8))
                header = _HEADER.validate_python(from_json(content.read(min(length, _LARGEST_HEADER))))
            header.pop("__metadata__", None)
            tensors = {name: _Tensor.model_validate(tensor) for name, tensor in header.items()}
            end = 8 + length + max((tensor.data_offsets[1] for tensor in tensors.values()), default=0)
        except (OSError, struct.error, ValueError) as error:
            raise CheckFailed(
                f"base_model: {file} is not a safetensors file: {_first_line(error)}", "download it again"
            ) from error
        if (size := file.stat().st_size) < end:
            raise CheckFailed(
                f"base_model: {file} is cut off: expected {end:,} bytes, got {size:,}", "download it again"
            )
        yield from tensors.items()


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        [details, *_] = error.errors()
        return str(fault_of(".".join(map(str, details["loc"])) or "content", details))
    return (str(error).splitlines() or [repr(error)])[0][:200]


def _refuse_no_chat(folder: Path, remedy: str) -> None:
    """Raise `CheckFailed` unless the folder has a tokenizer with a chat template and an end token."""
    # imported here, because it takes seconds to import
    from services.inference.engines.model_files import ChatRefused, tokenizer_of

    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise CheckFailed(f"base_model: {folder} has no tokenizer: expected a tokenizer.json", remedy)
    try:
        tokenizer = tokenizer_of(folder)
    except ChatRefused as error:
        raise CheckFailed(f"base_model: {error}", "put another chat_template.jinja there") from error
    except Exception as error:  # of any kind: for some broken files, the tokenizers' library raises Exception itself
        raise CheckFailed(
            f"base_model: {folder}: its tokenizer cannot be loaded: {_first_line(error)}", remedy
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
