r"""Texts with several meanings: `3 s` is three seconds or a product, `50p` pence or a product, `2, 1/2` two numbers or
one."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from core.grading.quantities import read_clock, read_quantity
from core.grading.units import read_unit

_SYMBOL_OR_UNIT = re.compile(r"(.*[0-9)}]) ([A-Za-z]{1,2})((?:\^\{[23]\})?)|(-?[0-9.]+)([msg])(\^\{[23]\})")
_TWO_UNITS = re.compile(r"([0-9.]+)(\\text\{[a-z]+\}), ([0-9.]+\\text\{[a-z]+\})")
_DOLLARS = re.compile(r"\\\$([0-9]+), ([0-9]{1,2}\\text\{cents?\})")
_POUNDS = re.compile(r"£|\\pounds|\\text\{(?:pounds?|sterling|pence)\}")
_PENCE = re.compile(r"([0-9.]+)p")
_REPEATING = re.compile(r"(-?0\.[0-9]+)\(([0-9]+)\)")
_TWO_NUMBERS = re.compile(r"(-?)([0-9]+), (?:([0-9]+)|([0-9]+)/([0-9]+)|\\frac\{([0-9]+)\}\{([0-9]+)\})")
_DATE = re.compile(r"[0-9]{1,2}h[0-9]{2}|[0-9]{4}-[01][0-9]-[0-3][0-9]|[0-3]?[0-9]/[0-3]?[0-9]/[0-9]{4}")


def readings(text: str, other: str) -> list[str]:
    """What a normalised text may mean beside another answer; the text alone if it has one meaning."""
    pence = _PENCE.fullmatch(text)
    return [text, rf"{pence[1]}\text{{pence}}"] if pence and _POUNDS.search(other) else _readings(text)


@lru_cache(maxsize=16_384)
def _readings(text: str) -> list[str]:
    if (parts := _TWO_UNITS.fullmatch(text)) and read_quantity("".join(parts.groups())).number is not None:
        return [text, "".join(parts.groups())]
    if dollars := _DOLLARS.fullmatch(text):
        return [text, rf"{dollars[1]}\text{{dollars}}{dollars[2]}"]
    if decimal := _REPEATING.fullmatch(text):
        return [rf"{decimal[1]}\cdot{decimal[2]}", rf"{decimal[1]}\overline{{{decimal[2]}}}"]
    match = _SYMBOL_OR_UNIT.fullmatch(text)
    if match is None or read_clock(text):
        return [text]
    number, letters, power = match.groups()[:3] if match[1] else match.groups()[3:]
    if read_unit(letters) is None:
        return [text]
    return [rf"{number}{letters}{power}", rf"{number}\text{{{letters}}}{power}"]


def is_ambiguous(text: str) -> bool:
    """Whether no reader can tell which meaning is meant: `0.1(6)` is 1/6 or a product."""
    return _REPEATING.fullmatch(text) is not None


def may_be_number(listed: str, single: str) -> bool:
    """Whether a list may be one number, and is the other text then: `3, 14` with a decimal comma, `2, 1/2` as a mixed
    number."""
    parts, number = _TWO_NUMBERS.fullmatch(listed), read_quantity(single).number
    if parts is None or number is None:
        return False
    sign, whole, digits, *ratios = parts.groups()
    if digits:
        return number == Fraction(f"{sign}{whole}.{digits}")
    above, below = filter(None, ratios)
    return int(below) > 0 and abs(number) == int(whole) + Fraction(int(above), int(below))


def is_date(text: str) -> bool:
    """Whether a text is a date or a time as `1h30`, and no difference, quotient or product."""
    return _DATE.fullmatch(text) is not None
