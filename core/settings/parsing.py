"""Reading a configuration: TOML presets, overrides and stored runs.

Each error message names the field, what was expected and what came. An unknown key is an error too.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from core.errors import CoevoError
from core.methods import Method, SolverReward
from core.settings.config import CoEvolution, RunConfig, SelfTraining

Settings = TypeVar("Settings", bound=BaseModel)

_METHOD: TypeAdapter[Any] = TypeAdapter(SolverReward)
_MAX_ERRORS, _MAX_CHARS = 20, 100  # errors that a message lists; characters of a name or a value in it


class ConfigError(CoevoError):
    """A preset or an override that cannot be used. The message names the field, what was expected and what came."""


def load_config(path: Path, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """Read a TOML preset; `overrides` maps dotted names to values (`{"dataset.candidates": 320}`).

    An override that changes a `type` removes the preset's other settings of that table, because they belong to another
    variant. So `{"solver.reward.type": "evol_rl"}` runs a preset with EVOL-RL's own numbers.
    """
    config = parse_config(with_overrides(read_preset(path), overrides or {}), source=str(path))
    if unused := list(_unused(config)):
        raise ConfigError("\n".join([f"{path}: settings that this run would not use", *unused]))
    return config


def read_preset(path: Path) -> dict[str, Any]:
    """The tree of settings that a preset's file has, without defaults. Raises `ConfigError`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"preset {path}: no such file") from error
    except OSError as error:
        raise ConfigError(f"preset {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        byte = f"{error.object[error.start]:#04x}"
        raise ConfigError(f"preset {path}: expected text in UTF-8, got the byte {byte}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"preset {path}: not valid TOML: {error}") from error


def _unused(config: RunConfig) -> Iterator[str]:
    """The settings that a run would ignore. Stored runs are not checked, because every setting is stored with them."""
    if not isinstance(config, SelfTraining):
        return
    method = config.solver.reward
    if config.prompts.labels != "none" and "label" not in method.needs:
        remedy = "set prompts.labels = 'none'"
        if "offline" in get_args(type(method).model_fields["labels"].annotation):
            remedy += ", or also set solver.reward.labels = 'offline'"
        yield f"  prompts.labels is {config.prompts.labels!r}, but {method.type} learns without given labels: {remedy}"


def parse_config(tree: Mapping[str, Any], source: str) -> RunConfig:
    """Validate a tree of settings. `source` begins the message of a `ConfigError`.

    If `kind` is missing, it is "self_train" if there is a table `prompts`, else "co_evolve".
    """
    kinds: dict[Any, type[CoEvolution | SelfTraining]] = {"co_evolve": CoEvolution, "self_train": SelfTraining}
    kind = tree.get("kind", "co_evolve" if tree.get("prompts") is None else "self_train")
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigError(f"{source}: kind: expected {' or '.join(kinds)}, got {repr(kind)[:_MAX_CHARS]}")
    try:
        return kinds.pop(kind).model_validate(tree)
    except ValidationError as error:
        lines = _error_lines(error, *kinds.values())
        raise ConfigError("\n".join([f"{source}: not a valid run configuration", *lines])) from error


def validated(kind: type[Settings], values: Mapping[str, Any], source: str) -> Settings:
    """Validate one table of settings. Raises `ConfigError`, whose message `source` begins."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join([f"{source}: not valid", *_error_lines(error)])) from error


def parse_method(name: str, settings: Mapping[str, Any] | None = None) -> Method:
    """The Solver's method of this `type`, with its paper's numbers except for `settings`. Raises `ConfigError`."""
    try:
        method: Method = _METHOD.validate_python({"type": name, **(settings or {})})
    except ValidationError as error:
        raise ConfigError("\n".join([f"method {name}: not a valid method", *_error_lines(error)])) from error
    return method


def with_overrides(tree: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a configuration with other values; `overrides` maps dotted names to them. Raises `ConfigError`."""
    changed = deepcopy(dict(tree))
    # Each `type` is set first, because the other overrides of its table are meant for the new variant.
    for name, value in sorted(overrides.items(), key=lambda item: not item[0].endswith(".type")):
        _set(changed, name, value)
    return changed


def _set(tree: dict[str, Any], dotted: str, value: Any) -> None:
    """Set the setting with a dotted name. A new `type` removes the other settings of its table."""
    *parents, last = dotted.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"override {dotted}: {parent} is a value, not a section")
    if last == "type" and tree.get("type") != value:
        tree.clear()
    tree[last] = value


def _error_lines(error: ValidationError, other: type[CoEvolution | SelfTraining] | None = None) -> list[str]:
    """One line per error. If only the `other` kind of run has a setting, its line says so."""
    errors = error.errors()
    lines = list[str]()
    for details in errors[:_MAX_ERRORS]:
        without_input = details["type"] in ("extra_forbidden", "missing")
        text = details["msg"] + ("" if without_input else f" (got {repr(details['input'])[:_MAX_CHARS]})")
        if details["type"] == "extra_forbidden" and other is not None and _has_setting(other, details["loc"]):
            text = f"only a run of kind {other.model_fields['kind'].default} has this setting: leave it out"
        lines.append(f"  {'.'.join(map(str, details['loc']))[:_MAX_CHARS] or 'run'}: {text}")
    return [*lines, f"  and {len(errors) - len(lines):,} more"] if len(errors) > len(lines) else lines


def _has_setting(model: Any, setting: Sequence[int | str]) -> bool:
    for name in setting:
        fields = getattr(model, "model_fields", {})
        if name not in fields:
            return False
        model = fields[name].annotation
    return True
