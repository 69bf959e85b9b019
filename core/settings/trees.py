"""Trees of settings, as TOML and JSON have them, and the settings in them by their dotted names."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from core.challenger import ChallengerReward, RZeroChallenger

Tree = Mapping[str, Any]

# The settings that all of the Challenger's rewards have are of the run, not of a paper: another type keeps them.
_SHARED = {"challenger.reward": {*ChallengerReward.model_fields} - {"type"}}
_USUAL = {"challenger.reward": RZeroChallenger().type}  # the type of a table that names none


def flat(tree: Tree, prefix: str = "") -> dict[str, Any]:
    """A tree of settings by dotted names, in its order. An empty table has no name."""
    return {name: value for name, value in by_dotted_names(tree, prefix).items() if value != {}}


def by_dotted_names(overrides: Tree, prefix: str = "") -> dict[str, Any]:
    """Overrides by the dotted names of single settings, whether they are given so or in tables.

    `{"dataset": {"candidates": 320}}` is `{"dataset.candidates": 320}`. An empty table stays as it is, because it may
    stand for a table with its defaults. Of a setting that is given twice, the later value counts.
    """
    settings: dict[str, Any] = {}
    for name, value in overrides.items():
        inside = isinstance(value, Mapping) and len(value) > 0
        settings |= by_dotted_names(value, f"{prefix}{name}.") if inside else {f"{prefix}{name}": value}
    return settings


def with_overrides(tree: Tree, overrides: Tree) -> dict[str, Any]:
    """A copy of a tree of settings with other values. What the overrides do not name stays as it is.

    An override is a dotted name or a table, `{"dataset.candidates": 320}` or `{"dataset": {"candidates": 320}}`. A new
    `type` removes the other settings of its table, because they belong to another variant; the Challenger's reward
    keeps what all its variants have.
    """
    changed = deepcopy(dict(tree))
    settings = by_dotted_names(overrides)
    # Each `type` comes before the settings that are meant for it, and an outer type before one inside its table. A
    # value in the place of a whole table comes last, so that it is not lost but refused.
    types = sorted((name for name in settings if name.endswith(".type")), key=lambda name: name.count("."))
    others = sorted((name for name in settings if not name.endswith(".type")), key=lambda name: -name.count("."))
    for name in (*types, *others):
        table, (*parents, last), value = changed, name.split("."), deepcopy(settings[name])
        for parent in parents:
            table = _table(table, parent)
        if value == {}:
            _table(table, last)
            continue
        within = ".".join(parents)
        if last == "type" and table.get("type", _USUAL.get(within)) != value:
            shared = {setting: table[setting] for setting in table if setting in _SHARED.get(within, ())}
            table.clear()
            table.update(shared)
        table[last] = value
    return changed


def _table(tree: dict[str, Any], name: str) -> dict[str, Any]:
    """The table of this name, which is made if there is none, or a value such as "none" in its place."""
    if not isinstance(tree.get(name), dict):
        tree[name] = {}
    table: dict[str, Any] = tree[name]
    return table
