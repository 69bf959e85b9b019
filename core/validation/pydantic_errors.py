"""Makes a fault of one of pydantic's errors: a sentence that says what was expected and what came."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from core.validation.faults import Fault
from core.validation.suggestions import nearest

MAX_CHARS = 100  # characters of a name or a value in a message
# What pydantic's errors expect, by their type; the names in braces are pydantic's.
_BOUNDS = {
    "finite_number": "a finite number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}
_EXPECTED = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "a table of names and values"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    "string_type": "a text",
    "string_pattern_mismatch": "a text that matches {pattern}",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
    **_BOUNDS,
    "literal_error": "{expected}",
    "missing": "a value",
    "union_tag_invalid": "one of {expected_tags}",
}
_QUOTED = re.compile(r"'([^']+)'")


def fault_of(name: str, details: Mapping[str, Any]) -> Fault:
    """The fault of the value called `name`. `details` are what `ValidationError.errors` lists for it.

    If the error's own text begins with the name of a field within the value, the fault is called by both.
    """
    type_, value, context = details["type"], details["input"], details.get("ctx", {})
    if type_ == "value_error":
        return Fault.of(name, str(context["error"]))
    if type_ not in _EXPECTED:
        return Fault(name, f"{details['msg']} (got {shown(value)})")
    whole = {name: int(bound) for name, bound in context.items() if isinstance(bound, float) and bound.is_integer()}
    expected = _EXPECTED[type_].format(**{**context, **whole})
    if type_ == "missing":
        return Fault(name, "none", expected)
    if type_ in _BOUNDS and isinstance(value, str):
        return Fault(name, value[:MAX_CHARS], expected)  # a number of a query, which is a text
    suggestion = nearest(value, _QUOTED.findall(expected)) if isinstance(value, str) else None
    return Fault(name, shown(value), expected, suggestion and f"did you mean {suggestion!r}?")


def name_of(location: Sequence[int | str], tree: Any, *, missing: bool) -> str:
    """The dotted name of pydantic's location in what was validated, `tree`.

    The location also has the types of variants in it: a part that is not in `tree` is such a type, except the name of a
    `missing` value at the end.
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


def shown(value: Any) -> str:
    """A value as it is shown in a message."""
    return "none" if value is None else repr(value)[:MAX_CHARS]
