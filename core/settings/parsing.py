"""Reading a configuration: TOML presets, overrides and stored runs.

Each error message names the setting, what was expected and what came, and blames either the file or the override. An
unknown key is an error too.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from core.errors import CoevoError
from core.methods import METHODS, Method
from core.settings.complaints import MOST, faults_of
from core.settings.config import CoEvolution, RunConfig, SelfTraining
from core.settings.toml_text import from_toml
from core.settings.trees import with_overrides
from core.validation.faults import Fault
from core.validation.pydantic_errors import MAX_CHARS
from core.validation.suggestions import no_such

Settings = TypeVar("Settings", bound=BaseModel)

OVERRIDES = "overrides"  # how the REST API and the flows' forms call them


class ConfigError(CoevoError):
    """A preset or an override that cannot be used. The message names the setting, what was expected and what came.

    `faults` has one for each setting; it is empty if there is no setting to name, as when a file cannot be read.
    """

    def __init__(self, message: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults)


def load_config(path: Path, overrides: Mapping[str, Any] | None = None, overrides_are: str = OVERRIDES) -> RunConfig:
    """Read a TOML preset; `overrides` has other values, by dotted names or in tables (`with_overrides`).

    So `{"solver.reward.type": "evol_rl"}` runs a preset with EVOL-RL's own numbers. An error about an override calls it
    `overrides_are`, which is "--set" on the command line.
    """
    return changed_config(read_preset(path), str(path), overrides or {}, overrides_are)


def changed_config(
    tree: Mapping[str, Any], source: str, overrides: Mapping[str, Any], overrides_are: str = OVERRIDES
) -> RunConfig:
    """The settings of a tree with other values, as `load_config`; `source` is what an error calls the tree."""
    config = parse_config(with_overrides(tree, overrides), source, overrides, overrides_are)
    unused = []  # a stored run that goes on is not asked, because every setting is stored with it
    for planned in config.trainings:
        step, update = planned.training.prompts_per_step, planned.training.prompts_per_update
        if update is not None and update > step:
            setting = f"{planned.table}.training.prompts_per_update"
            unused.append(Fault(setting, f"{update}", f"at most prompts_per_step = {step}"))
    method = config.solver.reward
    if isinstance(config, SelfTraining) and config.prompts.labels != "none" and "label" not in method.needs:
        remedy = "set prompts.labels = 'none'"
        if "offline" in get_args(type(method).model_fields["labels"].annotation):
            remedy += ", or also set solver.reward.labels = 'offline'"
        got = f"{config.prompts.labels!r}, but {method.type} learns without given labels"
        unused.append(Fault("prompts.labels", got, "'none'", remedy))
    if unused:
        _raise(unused, f"{source}: settings that this run would not use", overrides, overrides_are)
    return config


def load_despite_faults(
    path: Path, overrides: Mapping[str, Any], overrides_are: str = OVERRIDES
) -> tuple[RunConfig | None, list[Fault]]:
    """As `load_config`, but without the overrides that are wrong, so that the others can be checked too.

    Returns the settings, None if the preset itself is wrong, and all faults. Raises `ConfigError` if the preset cannot
    be read.
    """
    return changed_despite_faults(read_preset(path), str(path), overrides, overrides_are)


def changed_despite_faults(
    tree: Mapping[str, Any], source: str, overrides: Mapping[str, Any], overrides_are: str = OVERRIDES
) -> tuple[RunConfig | None, list[Fault]]:
    """As `load_despite_faults`, of a tree of settings; `source` is what an error calls it."""
    faults: list[Fault] = []
    while True:
        try:
            return changed_config(tree, source, overrides, overrides_are), faults
        except ConfigError as error:
            if not error.faults:
                raise
            doubted = {fault.table for fault in faults}  # what is left out may cause further faults in its table
            faults += [fault for fault in error.faults if fault.table not in doubted]
            blamed = {fault.source for fault in error.faults}
            right = {
                name: value for name, value in overrides.items() if _typed(name, value, overrides_are) not in blamed
            }
            if len(right) == len(overrides):
                return None, faults
            overrides = right


def read_preset(path: Path) -> dict[str, Any]:
    """The tree of settings that a preset's file has, without defaults. Raises `ConfigError`."""
    try:
        return from_toml(_text_of(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"preset {path}: not valid TOML: {error}") from error


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"preset {path}: no such file") from error
    except OSError as error:
        raise ConfigError(f"preset {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        byte = f"{error.object[error.start]:#04x}"
        raise ConfigError(f"preset {path}: expected text in UTF-8, got the byte {byte}") from error


def comment_of(path: Path) -> str:
    """The comment at the beginning of a preset, without its `#`. Its first line is a sentence that says what it is.

    Raises `ConfigError` if the file cannot be read.
    """
    lines = []
    for line in _text_of(path).splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return "\n".join(lines)


def parse_config(
    tree: Mapping[str, Any],
    source: str,
    overrides: Mapping[str, Any] | None = None,
    overrides_are: str = OVERRIDES,
) -> RunConfig:
    """Validate a tree of settings. A `ConfigError` blames `source`, or those of the `overrides`, already in the tree,
    that are wrong.

    If `kind` is missing, it is "self_train" if there is a table `prompts`, else "co_evolve".
    """
    kinds: dict[Any, type[CoEvolution | SelfTraining]] = {"co_evolve": CoEvolution, "self_train": SelfTraining}
    kind = tree.get("kind", "co_evolve" if tree.get("prompts") is None else "self_train")
    if not isinstance(kind, str) or kind not in kinds:
        known = " or ".join(kinds)
        fault = Fault("kind", repr(kind)[:MAX_CHARS], known)
        _raise([fault], f"{source}: not a valid run configuration", overrides or {}, overrides_are)
    try:
        return kinds[kind].model_validate(tree)
    except ValidationError as error:
        [other] = kinds.keys() - {kind}
        faults = faults_of(error, tree, kinds[kind], kinds[other])
        _raise(faults, f"{source}: not a valid run configuration", overrides or {}, overrides_are, error)


def validated(kind: type[Settings], values: Mapping[str, Any], source: str) -> Settings:
    """Validate one table of settings. Raises `ConfigError`, whose message `source` begins."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        _raise(faults_of(error, values, kind), f"{source}: not valid", cause=error)


def parse_method(name: str, settings: Mapping[str, Any] | None = None, overrides_are: str = OVERRIDES) -> Method:
    """The Solver's method of this `type`, with its paper's numbers except for `settings`. Raises `ConfigError`."""
    if name not in METHODS:
        raise ConfigError(f"method {name!r}: {no_such('method', METHODS, name)}")
    tree = {"type": name, **(settings or {})}
    try:
        return METHODS[name].model_validate(tree)
    except ValidationError as error:
        faults = faults_of(error, tree, METHODS[name])
        _raise(faults, f"method {name}: not a valid method", settings or {}, overrides_are, error)


def _typed(name: str, value: Any, overrides_are: str) -> str:
    """An override as its caller gave it: `--set dataset.candidates=320`."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return f"{overrides_are} {name}={text}"[: 2 * MAX_CHARS]


def _raise(
    faults: Sequence[Fault],
    head: str,
    overrides: Mapping[str, Any] | None = None,
    overrides_are: str = OVERRIDES,
    cause: ValidationError | None = None,
) -> NoReturn:
    """Raise a `ConfigError` with the faults. `head` says which file they are in; those of overrides come behind it.

    An override has caused a fault if it names the setting, a table of it or a part of it.
    """
    in_file, in_overrides = list[Fault](), list[Fault]()
    for fault in faults:
        for name, value in (overrides or {}).items():
            below = name.startswith(f"{fault.setting}.")
            if name == fault.setting or below or fault.setting.startswith(f"{name}."):
                source = _typed(name, value, overrides_are)
                in_overrides.append(replace(fault, setting=name if below else fault.setting, source=source))
                break
        else:
            in_file.append(fault)
    lines = [*([head] if in_file else []), *(f"  {fault}" for fault in in_file), *map(str, in_overrides)]
    if (left_out := (cause.error_count() if cause else 0) - MOST) > 0:
        lines.append(f"  and {left_out:,} more")
    raise ConfigError("\n".join(lines), [*in_file, *in_overrides]) from cause
