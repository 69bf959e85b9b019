"""The dotted names of all settings, and which of them a mistyped name may mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

_MOST = 3  # suggestions
_LAST_CUTOFF, _CUTOFF, _SURE = 0.75, 0.8, 0.9  # of difflib's ratio, in which 1 is equality


@cache
def setting_names(kind: type[BaseModel]) -> dict[str, tuple[str, ...]]:
    """Dotted name -> the variants that have the setting, for all settings and tables of a configuration.

    A variant is the `type` of a method or a trainer. A setting that all variants have in common, or that is in no table
    with variants, has an empty tuple.
    """
    names: dict[str, list[str]] = {}
    for name, variant in _walk(kind, "", None):
        variants = names.setdefault(name, [])
        if variant is not None:
            variants.append(variant)
    return {name: tuple(variants) for name, variants in names.items()}


def nearest_settings(name: str, known: Sequence[str]) -> list[str]:
    """The settings that a mistyped name may mean, the most similar first, at most three.

    The last part of a name counts most, so that `candidates` finds `dataset.candidates` in another table.
    """
    likeness = {setting: SequenceMatcher(None, name, setting).ratio() for setting in known}
    lasts = get_close_matches(_last(name), {_last(setting) for setting in known}, n=1, cutoff=_LAST_CUTOFF)
    similar = [setting for setting in known if _last(setting) in lasts or likeness[setting] >= _CUTOFF]
    similar.sort(key=lambda setting: -likeness[setting])
    return similar[: 1 if similar and likeness[similar[0]] >= _SURE else _MOST]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _walk(kind: type[BaseModel], above: str, variant: str | None) -> Iterator[tuple[str, str | None]]:
    for name, field in kind.model_fields.items():
        yield f"{above}{name}", variant
        if get_origin(field.annotation) is dict:
            yield from ((f"{above}{name}.{key}", variant) for key in get_args(get_args(field.annotation)[0]))
        named = [(table, _type_of(table)) for table in dict.fromkeys(_tables(field.annotation))]
        has_variants = sum(type_ is not None for _, type_ in named) > 1
        for table, type_ in named:
            yield from _walk(table, f"{above}{name}.", type_ if has_variants else variant)


def _tables(annotation: Any) -> Iterator[type[BaseModel]]:
    """The tables that a setting may have."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for argument in get_args(annotation):
        yield from _tables(argument)


def _type_of(table: type[BaseModel]) -> str | None:
    field = table.model_fields.get("type")
    return str(get_args(field.annotation)[0]) if field and get_origin(field.annotation) is Literal else None
