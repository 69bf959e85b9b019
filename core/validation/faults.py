"""What is wrong with one setting of a run, so that all faults of a run can be shown at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_INSIDE = re.compile(r"([a-z_]+(?:\.[a-z0-9_]+)*): (.+)", re.DOTALL)  # `band: expected [low, high], got [1, 0]`


@dataclass(frozen=True, slots=True)
class Fault:
    """A setting with a value that cannot be used, or something that it needs and that is missing.

    `setting` is its dotted name, or the parameter of a run: `name`, `iterations`, `preset`. `expected` is None if `got`
    is a sentence that says by itself what is wrong. `source` is where the wrong value was given: an override as its
    caller gave it, such as `--set dataset.votes=0`, or a preset; None if the message around the fault says it.
    """

    setting: str
    got: str
    expected: str | None = None
    remedy: str | None = None
    source: str | None = None

    @property
    def table(self) -> str:
        """The first part of the setting's name."""
        return self.setting.partition(".")[0]

    @classmethod
    def of(cls, setting: str, sentence: str) -> Fault:
        """The fault of a validator's sentence, which may begin with the name of a setting in the table `setting`."""
        if (match := _INSIDE.fullmatch(sentence)) is None:
            return cls(setting, sentence)
        return cls(".".join(filter(None, (setting, match[1]))), match[2])

    @property
    def problem(self) -> str:
        """The fault without the name of its setting."""
        problem = self.got if self.expected is None else f"expected {self.expected}, got {self.got}"
        return problem + (f"; {self.remedy}" if self.remedy else "")

    def __str__(self) -> str:
        inside = self.source is not None and f"{self.setting}=" not in self.source
        subject = self.setting if self.source is None else f"{self.source}: {self.setting}" if inside else self.source
        return f"{subject}: {self.problem}"


def listed(faults: Sequence[Fault]) -> str:
    """One fault as a line; several as a list with their number."""
    if len(faults) == 1:
        return str(faults[0])
    return "\n".join([f"{len(faults)} faults:", *(f"  {fault}" for fault in faults)])
