"""The gates, of which a preset's `[[dataset.gates]]` names some. Each gate is one file of this package.

A gate decides which of the questions that the band kept the Solver learns from. Its file has its settings, what it must
be told besides the votes, and where it comes from. Each class of the file that has a `type` is a gate; there is no list
to add it to. A package that is installed beside coevo can have such files too: it names them as entry points of the
group `GROUP` (docs/extending.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from core.challenger.gates.base import Admission, Candidate, Evidence, Gate, Known, Passed, pass_gates
from core.validation.kinds import kinds_of, modules_of

GROUP = "coevo.gates"
GATES = kinds_of(modules_of(__name__, __path__, GROUP), Gate)

if TYPE_CHECKING:
    AnyGate = Gate
else:
    AnyGate = Annotated[Union[tuple(GATES.values())], Field(discriminator="type")]  # noqa: UP007

__all__ = ["GATES", "Admission", "AnyGate", "Candidate", "Evidence", "Gate", "Known", "Passed", "pass_gates"]
