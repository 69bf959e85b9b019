"""Makes faults of pydantic's errors, with the names that a user of coevo knows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from core.faults import Fault
from core.settings.names import nearest_settings, setting_names
from core.suggestions import nearest

MOST, MAX_CHARS = 20, 100  # faults of one tree; characters of a name or a value in a message
# What pydantic's errors expect, by their type; the names in braces are pydantic's.
_EXPECTED = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "a table of settings"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    "string_type": "a text",
    "string_pattern_mismatch": "a text that matches {pattern}",
    "finite_number": "a finite number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "union_tag_invalid": "one of {expected_tags}",
}
_QUOTED = re.compile(r"'([^']+)'")


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
    type_, value, context = details["type"], details["input"], details.get("ctx", {})
    setting = _setting(details["loc"], tree, missing=type_ == "missing")
    if type_ == "extra_forbidden":
        return _unknown(setting, value, tree, kind, other)
    if type_ == "value_error":
        return Fault.under(setting, str(context["error"]))
    if type_ in ("missing", "union_tag_not_found"):
        return Fault(setting if type_ == "missing" else f"{setting}.type", "none", "a value")
    if type_ == "union_tag_invalid":
        setting, value = f"{setting}.type", context["tag"]
    if type_ not in _EXPECTED:
        return Fault(setting or "run", f"{details['msg']} (got {shown(value)})")
    whole = {name: int(bound) for name, bound in context.items() if isinstance(bound, float) and bound.is_integer()}
    expected = _EXPECTED[type_].format(**{**context, **whole})
    suggestion = nearest(value, _QUOTED.findall(expected)) if isinstance(value, str) else None
    return Fault(setting or "run", shown(value), expected, suggestion and f"did you mean {suggestion!r}?")


def shown(value: Any) -> str:
    """A value as it is shown in a message."""
    return "none" if value is None else repr(value)[:MAX_CHARS]


def _setting(location: Sequence[int | str], tree: Any, *, missing: bool) -> str:
    """The dotted name of pydantic's location, which also has the types of variants in it.

    A part that is not in what was validated is such a type, except the name of a `missing` setting at the end.
    """
    parts = []
    for number, part in enumerate(location, 1):
        children = dict(enumerate(tree)) if isinstance(tree, list | tuple) else tree
        if isinstance(children, Mapping) and part in children:
            tree = children[part]
            parts.append(str(part))
        elif missing and number == len(location):
            parts.append(str(part))
    return ".".join(parts)[:MAX_CHARS]


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
