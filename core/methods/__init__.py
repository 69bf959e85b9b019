"""The Solver's methods: what a preset's `[solver.reward]` can say. A paper is one file of this package.

Such a file has the paper's settings with its numbers, the signals and labels that it needs, its reward, its estimator
where it has one of its own, and its equations in the docstrings. Whatever class of it has a `type` is a method: there
is no list to add it to. `docs/papers.md` maps every equation to its function and its test.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import Field

from core.methods.base import Advantage, Labels, LossAverage, Method, Objective, Signal

_PAPERS = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__) if module.name != "base"]


def _type_of(found: Any) -> str | None:
    """The `type` that a preset gives a method; None for what is none."""
    if not isinstance(found, type) or not issubclass(found, Method):
        return None
    annotation = found.model_fields["type"].annotation
    return str(get_args(annotation)[0]) if get_origin(annotation) is Literal else None


METHODS: dict[str, type[Method]] = {
    name: found for paper in _PAPERS for found in vars(paper).values() if (name := _type_of(found))
}

if TYPE_CHECKING:
    SolverReward = Method
else:
    SolverReward = Annotated[Union[tuple(METHODS.values())], Field(discriminator="type")]  # noqa: UP007

__all__ = ["METHODS", "Advantage", "Labels", "LossAverage", "Method", "Objective", "Signal", "SolverReward"]
