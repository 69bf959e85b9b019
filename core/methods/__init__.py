"""The Solver's methods, from which a preset's `[solver.reward]` chooses. Each paper is one file of this package.

Such a file has the paper's settings with its numbers as defaults, the signals and labels that its methods need, their
rewards, their estimators where these are their own, and its equations in the docstrings. Each class of the file that
has a `type` is a method; there is no list to add it to. `docs/methods.md` maps every equation to its function and test.

A package that is installed beside coevo can have such files too: it names them as entry points of the group `GROUP`
(docs/extending.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from core.methods.base import Advantage, Labels, LossAverage, Method, Objective, Signal
from core.validation.kinds import kinds_of, modules_of

GROUP = "coevo.methods"
METHODS = kinds_of(modules_of(__name__, __path__, GROUP), Method)

if TYPE_CHECKING:
    SolverReward = Method
else:
    SolverReward = Annotated[Union[tuple(METHODS.values())], Field(discriminator="type")]  # noqa: UP007

__all__ = ["METHODS", "Advantage", "Labels", "LossAverage", "Method", "Objective", "Signal", "SolverReward"]
