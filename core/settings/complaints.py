"""Makes faults of pydantic's errors about settings, with the name that was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from core.validation.faults import Fault
from core.validation.pydantic_errors import fault_of, name_of
from core.validation.suggestions import nearest

MOST = 20  # faults of one tree


def faults_of(
    error: ValidationError, tree: Mapping[str, Any], kind: type[BaseModel], other: type[BaseModel] | None = None
) -> list[Fault]:
    """A fault for each wrong setting of pydantic's first 20 errors. `tree` is what was validated as a `kind`.

    If only the `other` kind of run has a setting, its fault says so. Where a value may be of several types, pydantic
    has an error for each of them; they become one fault.
    """
    faults: dict[tuple[str, str], Fault] = {}
    for details in error.errors()[:MOST]:
        setting = name_of(details["loc"], tree, missing=details["type"] == "missing")
        match details["type"]:
            case "extra_forbidden":
                fault = _unknown(setting, details["input"], kind, other)
            case "union_tag_not_found":
                fault = fault_of(f"{setting}.type", {**details, "type": "missing"})
            case "union_tag_invalid":
                fault = fault_of(f"{setting}.type", {**details, "input": details["ctx"]["tag"]})
            case type_:  # the sentence of a validator may name the setting
                fault = fault_of(setting if setting or type_ == "value_error" else "run", details)
        if (before := faults.get((fault.setting, fault.got))) is not None:
            expected = ", or ".join(dict.fromkeys(filter(None, (before.expected, fault.expected))))
            fault = replace(before, expected=expected or None, remedy=before.remedy or fault.remedy)
        faults[fault.setting, fault.got] = fault
    # A table with a wrong setting is not also wrong for not being one of the words that may stand in its place.
    inside = tuple(fault.setting for fault in faults.values())
    return [fault for fault in faults.values() if not any(name.startswith(f"{fault.setting}.") for name in inside)]


def _unknown(setting: str, value: Any, kind: type[BaseModel], other: type[BaseModel] | None) -> Fault:
    """The fault of a setting that does not exist, with the name that was probably meant."""
    names = setting_names(kind)
    if re.sub(r"\.\d+(?=\.)", "", setting) in names:  # without the numbers of a list's tables
        table = setting.rpartition(".")[0]
        return Fault(setting, f"not a setting of the chosen {table}.type", remedy="choose another, or leave it out")
    if other is not None and setting in setting_names(other):
        only = f"only a run of kind {other.model_fields['kind'].default} has this setting"
        return Fault(setting, only, remedy="leave it out")
    meant = setting
    if isinstance(value, Mapping) and len(value) == 1:  # a mistyped table with one setting, as `--set` makes it
        meant += f".{next(iter(value))}"
    same_last = [name for name in names if name.rpartition(".")[2] == meant.rpartition(".")[2]]
    suggestion = nearest(meant, same_last, cutoff=0) if same_last else nearest(meant, names)
    return Fault(setting, "unknown setting", remedy=suggestion and f"did you mean {suggestion}?")


@cache
def setting_names(kind: type[BaseModel], above: str = "") -> tuple[str, ...]:
    """The dotted names of all settings and tables of a configuration, those of every `type` among them."""
    names = dict[str, None]()
    for name, field in kind.model_fields.items():
        names[f"{above}{name}"] = None
        if get_origin(field.annotation) is dict:
            names |= dict.fromkeys(f"{above}{name}.{key}" for key in get_args(get_args(field.annotation)[0]))
        for table in _tables(field.annotation):
            names |= dict.fromkeys(setting_names(table, f"{above}{name}."))
    return tuple(names)


def _tables(annotation: Any) -> Iterator[type[BaseModel]]:
    """The tables that a setting may have, one for each `type`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    else:
        for argument in get_args(annotation):
            yield from _tables(argument)
