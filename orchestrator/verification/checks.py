"""A check: how many things were looked at, and what is not as it should be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

_MOST_CHARS = 200  # of a value that is shown; it may be a model's text


@dataclass(frozen=True, slots=True)
class Violation:
    """What is wrong with a row or a file: what was expected of it, and what is stored instead."""

    row: str
    expected: str
    stored: str


@dataclass(slots=True)
class Check:
    """The result of one check. `notes` say what could not be checked and why, and what is worth knowing."""

    name: str
    checked: int = 0
    violations: list[Violation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def expect(self, row: str, expected: object, stored: object) -> None:
        """Count one thing, and a violation if the two values differ."""
        self.checked += 1
        if expected != stored:
            self.violate(row, shown(expected), shown(stored))

    def expect_fields(self, row: str, expected: Mapping[str, object], stored: Mapping[str, object]) -> None:
        """Count one thing, and a violation for each field of `expected` that has another value in `stored`."""
        self.checked += 1
        for name, value in expected.items():
            if stored.get(name) != value:
                self.violate(f"{row}: {name}", shown(value), shown(stored.get(name)))

    def violate(self, row: str, expected: str, stored: str) -> None:
        self.violations.append(Violation(row, expected, stored))


@dataclass(frozen=True, slots=True)
class Verification:
    """The results of all checks of a run. `left_out` names what was not checked, because it is not finished."""

    run: str
    checks: list[Check]
    left_out: list[str]

    @property
    def violations(self) -> int:
        return sum(len(check.violations) for check in self.checks)


def shown(value: object) -> str:
    """A value for a message. Control characters in it are escaped, and its length is limited."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= _MOST_CHARS else text[:_MOST_CHARS] + "…"


def fields_of(row: Any) -> dict[str, Any]:
    """Field -> value of a dataclass, without copies of the values."""
    return {item.name: getattr(row, item.name) for item in fields(row)}
