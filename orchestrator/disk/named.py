"""What the settings of a run from an archive name: programs, addresses, variables with keys, application files, models.

They are shown before the run is continued, because then they are run, asked, sent, loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from core.unicode import without_commands

# Settings whose values name something even if they are no path. A value with a slash is listed whatever its setting is.
_NAMES = frozenset({"key_variable", "applications", "base_model", "benchmark", "file", "url", "source"})
_KNOWN = frozenset({"micro", "micro-long", "embedded"})  # part of coevo
_LONGEST = 200  # characters of a value that are shown


def named_in(config: Any) -> dict[str, str]:
    """Setting, by its dotted name -> what it names. `config` is as it was stored, and need not be valid."""
    return dict(_named(config, ""))


def _named(value: Any, setting: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _named(inner, f"{setting}.{name}" if setting else str(name))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _named(inner, f"{setting}.{position}")
    elif isinstance(value, str) and ("/" in value or _last_name(setting) in _NAMES) and value not in _KNOWN:
        yield without_commands(setting)[:_LONGEST], without_commands(value)[:_LONGEST]


def _last_name(setting: str) -> str:
    return next((part for part in reversed(setting.split(".")) if not part.isdigit()), "")
