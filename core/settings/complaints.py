"""Makes faults of pydantic's errors, with the names that a user of coevo knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from core.faults import Fault
from core.settings.names import nearest_settings, setting_names
from core.validation import fault_of, name_of

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
        fault = _fault(details, tree, kind, other)
        before = faults.get((fault.setting, fault.got))
        faults[fault.setting, fault.got] = fault if before is None else _either(before, fault)
    # A table with a wrong setting is not also wrong for not being one of the words that may stand in its place.
    inside = tuple(fault.setting for fault in faults.values())
    return [fault for fault in faults.values() if not any(name.startswith(f"{fault.setting}.") for name in inside)]


def _either(first: Fault, second: Fault) -> Fault:
    """The fault of a value that neither of two types allows."""
    expected = ", or ".join(dict.fromkeys(filter(None, (first.expected, second.expected))))
    return replace(first, expected=expected or None, remedy=first.remedy or second.remedy)


def _fault(
    details: Mapping[str, Any], tree: Mapping[str, Any], kind: type[BaseModel], other: type[BaseModel] | None
) -> Fault:
    type_ = details["type"]
    setting = name_of(details["loc"], tree, missing=type_ == "missing")
    if type_ == "extra_forbidden":
        return _unknown(setting, details["input"], tree, kind, other)
    if type_ == "value_error":
        return fault_of(setting, details)
    if type_ == "union_tag_not_found":
        return fault_of(f"{setting}.type", {**details, "type": "missing"})
    if type_ == "union_tag_invalid":
        return fault_of(f"{setting}.type", {**details, "input": details["ctx"]["tag"]})
    return fault_of(setting or "run", details)


def _unknown(
    setting: str, value: Any, tree: Mapping[str, Any], kind: type[BaseModel], other: type[BaseModel] | None
) -> Fault:
    names = setting_names(kind)
    if variants := names.get(setting):
        table = setting.rpartition(".")[0]
        chosen = _at(tree, f"{table}.type")
        belongs = " or ".join(map(repr, variants[:3])) + (" and others" if len(variants) > 3 else "")
        return Fault(setting, f"not a setting of {table}.type = {chosen!r}", remedy=f"it belongs to {belongs}")
    if other is not None and setting in setting_names(other):
        only = f"only a run of kind {other.model_fields['kind'].default} has this setting"
        return Fault(setting, only, remedy="leave it out")
    only_key = next(iter(value)) if isinstance(value, Mapping) and len(value) == 1 else None
    remedy = suggested(f"{setting}.{only_key}", [*names]) if only_key else None
    return Fault(setting, "unknown setting", remedy=remedy or suggested(setting, [*names]))


def suggested(name: str, known: Sequence[str]) -> str | None:
    """`did you mean dataset.votes or challenger.reward.votes?`; None if no setting is like the name."""
    suggestions = nearest_settings(name, known)
    return f"did you mean {' or '.join(suggestions)}?" if suggestions else None


def _at(tree: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree
