"""What is wrong with one setting of a run, so that all faults of a run can be shown at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

_SETTING = re.compile(r"(?P<setting>[a-z_]+(?:\.[a-z0-9_]+)*): (?P<rest>.+)", re.DOTALL)
_EXPECTED = re.compile(r"expected (?P<expected>.+?),? got (?P<got>[^;]+)(?:; (?P<remedy>.+))?", re.DOTALL)


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
    def of(cls, setting: str, text: str) -> Fault:
        """The fault of an error's text, `expected …, got …; …`. Any other text is kept as a sentence."""
        if (match := _EXPECTED.fullmatch(text)) is None:
            return cls(setting, text)
        return cls(setting, match["got"], match["expected"].removesuffix(";"), match["remedy"])

    @classmethod
    def under(cls, setting: str, text: str) -> Fault:
        """As `of`, for an error's text that may begin with the name of a setting in the table `setting`."""
        if (match := _SETTING.fullmatch(text)) is None:
            return cls.of(setting, text)
        return cls.of(".".join(filter(None, (setting, match["setting"]))), match["rest"])

    def blamed_on(self, name: str, source: str) -> Fault:
        """The same fault as one of an override. `name` is the override's setting, `source` the text of the override."""
        in_this_setting = name == self.setting or name.startswith(f"{self.setting}.")
        return replace(self, setting=name if in_this_setting else self.setting, source=source)

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
