"""Reads TOML that comes from outside, and writes a configuration as TOML that `coevo run FILE` accepts."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

_DEEPEST = 50  # several times what any setting needs
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
NONE = "none"  # what a preset writes for a setting that is None and has another default, since TOML has no null


def from_toml(text: str) -> dict[str, Any]:
    """Parse TOML that comes from outside.

    Raises `tomllib.TOMLDecodeError` if `text` is not TOML, if an integer has more than the 4,300 digits that Python
    reads, or if it is nested deeper than `_DEEPEST` levels, which could exhaust Python's stack later.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except (RecursionError, ValueError) as error:
        raise tomllib.TOMLDecodeError(str(error)) from error
    tables: list[Any] = [tree]  # and lists
    depth = 0
    while tables:
        depth += 1
        inside = [child for table in tables for child in (table.values() if isinstance(table, dict) else table)]
        tables = [child for child in inside if isinstance(child, dict | list)]
    if depth > _DEEPEST:
        raise tomllib.TOMLDecodeError(f"expected at most {_DEEPEST} levels of tables and lists, got {depth}")
    return tree


def toml_of(tree: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """A tree of settings, as JSON has them, as TOML.

    A setting that is None is left out if it is None by default too (`defaults` are a tree), and is `NONE` otherwise.
    """
    return "\n".join(_lines(tree, defaults, "")) + "\n"


def _lines(tree: Mapping[str, Any], defaults: Mapping[str, Any], table: str) -> Iterator[str]:
    values = {name: value for name, value in tree.items() if not isinstance(value, Mapping)}
    written = {
        name: NONE if value is None else value
        for name, value in values.items()
        if value is not None or defaults.get(name) is not None
    }
    if table and written:
        yield f"\n[{table}]"
    for name, value in written.items():
        yield f"{_key(name)} = {_value(value)}"
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _lines(value, defaults.get(name) or {}, f"{table}.{_key(name)}" if table else _key(name))


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    """A table is an inline one. JSON's texts, numbers and booleans are TOML's too, except for DEL, which TOML wants
    escaped."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {_value(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")
