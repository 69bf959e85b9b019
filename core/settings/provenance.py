"""Where each setting of a run comes from, and in which settings runs differ. Settings have dotted names here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter

from core.settings.config import RunConfig
from core.settings.toml_text import NONE
from core.settings.trees import Tree, flat, with_overrides

# "continued": it was changed when the run was continued. "unknown": it is neither the preset's value nor the default,
# so the run was created without a preset, or the default was another one when it was.
Source = Literal["override", "preset", "default", "continued", "unknown"]
_AS_JSON: TypeAdapter[Any] = TypeAdapter(Any)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a run. Values are as in JSON. `default` is None also for a setting that has none (`required`)."""

    name: str
    value: Any
    source: Source
    default: Any
    required: bool

    @property
    def differs(self) -> bool:
        """Whether the value is not the default."""
        return self.required or self.value != self.default


def differing(trees: Mapping[str, Tree], ignored: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """The label of each tree -> its settings in which not all trees are equal, by dotted names in alphabetical order.

    A tree that lacks a setting has no entry for it. The tables or settings `ignored` are left out; they are names
    without a dot.
    """
    settings = {label: flat(tree) for label, tree in trees.items()}
    first = next(iter(settings.values()), {})
    names = [
        name
        for name in sorted({name for of_tree in settings.values() for name in of_tree})
        if name.partition(".")[0] not in ignored
        and any(of_tree.get(name) != first.get(name) for of_tree in settings.values())
    ]
    return {label: {name: of_tree[name] for name in names if name in of_tree} for label, of_tree in settings.items()}


def settings_of(config: RunConfig, preset: Tree | None, overrides: Tree, changeable: Sequence[str]) -> list[Setting]:
    """Every setting of a run, with its source.

    `preset` is the preset's tree, or None if it is not known; `overrides` are as in `with_overrides`. The tables or
    settings `changeable` may change when the run is continued.
    """
    values, defaults = flat(config.model_dump(mode="json")), flat(defaults_of(config))
    overridden, given = flat(overrides), flat(with_overrides(preset or {}, overrides))
    # A preset writes "none" where the default is another value, since TOML has no null.
    given |= {name: None for name, value in given.items() if value == NONE and values.get(name, NONE) is None}

    def source(name: str) -> Source:
        if values[name] != given.get(name, defaults.get(name)):
            # Without a preset, nothing tells a changed limit from one of the preset.
            return "continued" if preset is not None and name.partition(".")[0] in changeable else "unknown"
        if any(name == override or name.startswith(f"{override}.") for override in overridden):
            return "override"
        return "preset" if name in given else "default"

    return [
        Setting(name, value, source(name), defaults.get(name), name not in defaults) for name, value in values.items()
    ]


def defaults_of(config: BaseModel, usual: BaseModel | None = None) -> dict[str, Any]:
    """The defaults of all settings of `config`, as a tree; settings that have none are left out.

    A method has its own defaults, so they depend on the `type` of a table. `usual` is the table that the settings above
    have by default, whose values come before those of its class.
    """
    tree: dict[str, Any] = {}
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if usual is not None and type(usual) is type(config):
            default = getattr(usual, name)
        else:
            default = None if field.is_required() else field.get_default(call_default_factory=True, validated_data={})
        if isinstance(value, BaseModel):
            tree[name] = defaults_of(value, default if isinstance(default, BaseModel) else None)
            if "type" in tree[name] and hasattr(default, "type"):
                tree[name]["type"] = default.type
        elif not field.is_required():
            tree[name] = _AS_JSON.dump_python(default, mode="json")
    return tree
