"""The Solver's methods, from which a preset's `[solver.reward]` chooses. Each paper is one file of this package.

Such a file has the paper's settings with its numbers as defaults, the signals and labels that its methods need, their
rewards, their estimators where these are their own, and its equations in the docstrings. Each class of the file that
has a `type` is a method; there is no list to add it to. `docs/methods.md` maps every equation to its function and test.

A package that is installed beside coevo can have such files too: it names them as entry points of the group `GROUP`
(docs/extending.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Literal, Union, get_args, get_origin

from pydantic import Field

from core.methods.base import Advantage, Labels, LossAverage, Method, Objective, Signal

GROUP = "coevo.methods"
_PAPERS = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__) if module.name != "base"]
_PAPERS += [entry.load() for entry in entry_points(group=GROUP)]


def methods_of(papers: Iterable[ModuleType]) -> dict[str, type[Method]]:
    """type -> method, for all methods in the modules.

    Raises:
        TypeError: two methods have the same type.
    """
    methods: dict[str, type[Method]] = {}
    for paper in papers:
        for value in vars(paper).values():
            if not isinstance(value, type) or not issubclass(value, Method):
                continue
            annotation = value.model_fields["type"].annotation
            if get_origin(annotation) is not Literal:  # a base class
                continue
            name = str(get_args(annotation)[0])
            if methods.setdefault(name, value) is not value:
                raise TypeError(
                    f"core.methods: {methods[name].__qualname__} and {value.__qualname__} are both {name!r}: "
                    "expected a type of its own for each method"
                )
    return methods


METHODS = methods_of(_PAPERS)

if TYPE_CHECKING:
    SolverReward = Method
else:
    SolverReward = Annotated[Union[tuple(METHODS.values())], Field(discriminator="type")]  # noqa: UP007

__all__ = ["METHODS", "Advantage", "Labels", "LossAverage", "Method", "Objective", "Signal", "SolverReward"]
