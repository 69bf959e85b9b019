"""Finds the kinds of a setting, such as the Solver's methods: one class each, in a package and in others."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from types import ModuleType
from typing import Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel

Kind = TypeVar("Kind", bound=BaseModel)


def modules_of(package: str, path: list[str], group: str) -> list[ModuleType]:
    """The modules of a package but `base`, and the modules that other packages name as entry points of `group`."""
    own = [import_module(f"{package}.{module.name}") for module in iter_modules(path) if module.name != "base"]
    return [*own, *(entry.load() for entry in entry_points(group=group))]


def kinds_of(modules: list[ModuleType], base: type[Kind]) -> dict[str, type[Kind]]:
    """type -> class, for all subclasses of `base` in the modules whose field `type` is one Literal.

    Raises:
        TypeError: two classes have the same type.
    """
    kinds: dict[str, type[Kind]] = {}
    for module in modules:
        for value in vars(module).values():
            if not isinstance(value, type) or not issubclass(value, base):
                continue
            annotation = value.model_fields["type"].annotation
            if get_origin(annotation) is not Literal:  # a base class
                continue
            name = str(get_args(annotation)[0])
            if kinds.setdefault(name, value) is not value:
                raise TypeError(
                    f"{base.__module__}: {kinds[name].__qualname__} and {value.__qualname__} are both {name!r}: "
                    "expected a type of its own for each"
                )
    return kinds
