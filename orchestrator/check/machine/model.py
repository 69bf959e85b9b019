"""Whether a folder has a whole Hugging Face model: configuration, weights, tokenizer and chat template."""

from __future__ import annotations

from contextlib import suppress
from math import prod
from pathlib import Path

from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError, safe_open

from core.texts.unicode import from_json
from core.types import TINY_BASES
from core.validation.pydantic_errors import fault_of
from orchestrator.check.machine.result import CheckFailed, Finding, Subject, ok, skipped
from orchestrator.check.needs import base_model
from orchestrator.check.size.shapes import SizingError, shape_of

_AGAIN = "download it again"


class _Index(BaseModel):
    weight_map: dict[str, str]  # tensor -> file


def check_model(subject: Subject) -> Finding:
    """Whether the preset's base model is whole. What a start requires of it is not repeated here."""
    if subject.config is None or subject.config.base_model in TINY_BASES:
        return skipped("it is shipped with coevo")
    folder = base_model(subject.config)
    if not (folder / "config.json").is_file():
        return skipped(f"{folder} has no model")  # which keeps the run from starting
    remedy = f"download the model again into {folder}"
    sizes, dtypes = dict[str, int](), set[str]()
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(
                file, framework="numpy"
            ) as tensors:  # reads the header, and compares it with the file's size
                for name in tensors.keys():  # noqa: SIM118 (not a mapping)
                    tensor = tensors.get_slice(name)
                    sizes[name] = prod(tensor.get_shape())
                    dtypes.add(tensor.get_dtype())
        except (OSError, SafetensorError) as error:
            got = _first_line(error)
            raise CheckFailed(f"base_model: {file} is not a whole safetensors file: {got}", _AGAIN) from error
    index, named = folder / "model.safetensors.index.json", set[str]()
    if index.is_file():  # a model of one file has none
        try:
            named = {*_Index.model_validate(from_json(index.read_bytes())).weight_map.values()}
        except (OSError, ValueError) as error:
            got = _first_line(error)
            raise CheckFailed(f"base_model: {index} is not an index of shards: {got}", _AGAIN) from error
    if missing := sorted(named - {path.name for path in folder.glob("*.safetensors")}):
        raise CheckFailed(f"base_model: {folder}: shards are missing: {', '.join(missing)}", remedy)
    parameters, expected = sum(sizes.values()), 0
    with suppress(SizingError):  # a shape that coevo does not know
        expected = shape_of(subject.config.base_model).parameters
    if parameters < expected:
        detail = f"expected {expected:,} parameters, its files have {parameters:,}"
        raise CheckFailed(f"base_model: {folder}: {detail}", remedy)
    _refuse_no_chat(folder, remedy)
    return ok(f"{folder}: {parameters:,} parameters in {', '.join(sorted(dtypes))}, with tokenizer and chat template")


def _refuse_no_chat(folder: Path, remedy: str) -> None:
    """Raise `CheckFailed` unless the folder has a tokenizer with a chat template and an end token."""
    # imported here, because it takes seconds to import
    from services.inference.engines.model_files import ChatRefused, tokenizer_of

    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise CheckFailed(f"base_model: {folder} has no tokenizer: expected a tokenizer.json", remedy)
    at_fault = f"base_model: {folder}: its tokenizer"
    try:
        tokenizer = tokenizer_of(folder)
    except ChatRefused as error:
        raise CheckFailed(f"base_model: {error}", "put another chat_template.jinja there") from error
    except Exception as error:  # of any kind: for some broken files, the tokenizers' library raises Exception itself
        raise CheckFailed(f"{at_fault} cannot be loaded: {_first_line(error)}", remedy) from error
    if tokenizer.chat_template is None:
        put = f"put a chat_template.jinja into {folder}, for example from the model's instruct version"
        raise CheckFailed(f"{at_fault} has no chat template", put)
    if tokenizer.eos_token_id is None:
        raise CheckFailed(f"{at_fault} has no end token", "set eos_token in tokenizer_config.json")


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        [details, *_] = error.errors()
        return str(fault_of(".".join(map(str, details["loc"])) or "content", details))
    return (str(error).splitlines() or [repr(error)])[0][:200]
