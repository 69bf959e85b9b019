"""The presets that a caller may start a run from, and what of their settings it may change."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args

from fastapi import Depends, Request
from pydantic import Field

from core.settings.config import RunConfig
from core.settings.parsing import ConfigError, load_config
from services.api.problems import invalid

_Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Word = Annotated[str, Field(max_length=100)]
Override = bool | _Whole | _Number | _Word | Annotated[list[_Number], Field(max_length=100)]
# No leading underscore: `__prefect_kind` has Prefect fill a parameter in from its templates and variables.
Setting = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){0,5}$", max_length=100)]


def _presets(request: Request) -> dict[str, Path]:
    folder: Path | None = request.app.state.presets
    return {} if folder is None else {path.stem: path for path in folder.glob("*.toml")}


Presets = Annotated[dict[str, Path], Depends(_presets)]  # name -> file


def about(path: Path) -> str:
    """The first line of a preset's comment."""
    with path.open(encoding="utf-8") as file:
        first = file.readline()
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def configured(presets: Presets, preset: str, iterations: int | None, overrides: Mapping[str, Override]) -> RunConfig:
    """What the flow will make of it too, so that what is wrong with it is said at once.

    Raises `RequestValidationError`, naming the field. A text must be a word that settings choose among: others name
    files, programs and addresses of the server, which are not a caller's to choose.
    """
    path = presets.get(preset)
    if path is None:
        raise invalid("preset", f"expected one of {', '.join(sorted(presets)) or 'none'}, got {preset}")
    for name, value in overrides.items():
        if isinstance(value, str) and value not in _words():
            raise invalid(f"overrides.{name}", f"expected a number or a word that settings choose among, got {value!a}")
    more = {"iterations": iterations} if iterations else {}
    try:
        return load_config(path, {**overrides, **more})
    except ConfigError as error:
        first, *complaints = str(error).removeprefix(f"{path}: ").splitlines()
        raise invalid("overrides", "; ".join(line.strip() for line in complaints or [first])) from error


@cache
def _words() -> frozenset[str]:
    """All words that a setting is one of, and the names of question sets that are not in a file."""
    words = {"micro", "micro-validation", "benchmark"}
    parts: list[Any] = [kind.model_json_schema() for kind in get_args(RunConfig)]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            words.update(word for word in [part.get("const"), *part.get("enum", [])] if isinstance(word, str))
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return frozenset(words)
