"""A check: what it compares, and what is not as it should be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass

Compared = tuple[str, object, object]  # a row or a file, what is expected of it, and what is stored
_TOLERANCE = 1e-6  # of numbers, relative to the largest beside them: the same sum in another order is rounded otherwise
_MOST_CHARS = 400  # of a value that is shown; it may be a model's text


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


@dataclass(frozen=True, slots=True)
class Verification:
    """The results of all checks of a run. `left_out` names what was not checked, because it is not finished."""

    run: str
    checks: list[Check]
    left_out: list[str]

    @property
    def violations(self) -> int:
        return sum(len(check.violations) for check in self.checks)


def differences(row: str, expected: object, stored: object) -> Iterator[Violation]:
    """What differs: the fields of two rows of one kind, the keys of a mapping that are expected, else the values."""
    if is_dataclass(expected) and type(expected) is type(stored):
        expected, stored = ({item.name: getattr(of, item.name) for item in fields(of)} for of in (expected, stored))
    if isinstance(expected, Mapping) and isinstance(stored, Mapping):
        for name, value in expected.items():
            yield from differences(f"{row}: {name}", value, stored.get(name))
    elif not _same(expected, stored):
        yield Violation(row, shown(expected), shown(stored))


def _same(a: object, b: object, largest: float = 0.0) -> bool:
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        largest = max((abs(number) for number in [*a, *b] if isinstance(number, float)), default=0.0)
        return all(_same(x, y, largest) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= _TOLERANCE * max(largest, abs(a))
    return a == b


def shown(value: object) -> str:
    """A value for a message. Control characters in it are escaped, and its length is limited."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= _MOST_CHARS else text[:_MOST_CHARS] + "…"
