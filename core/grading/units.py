"""Units of quantities: their spellings, and their sizes where one can be converted into another.

A small table, and no unit library: an answer's unit is compared, never computed with, and a library takes longer to
import than a whole vote. Sizes are exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cache, lru_cache
from typing import NamedTuple

from core.grading.units_table import MONEY, NO_NOUN, POWER_WORDS, PREFIX_WORDS, PREFIXES, TABLE

_LONGEST = 60  # characters of a unit

_ITEM = re.compile(
    r"\^\{?\\circ\}?(?:[CF](?![A-Za-z]))?|\\[a-z]+|[A-Z]{0,2}\\?\$"
    r"|[^\W\d_]+(?:-[^\W\d_]+)*\.?|[€£¥₹₩₽₫฿₺₴₦₱]"
)
_EXPONENT = re.compile(r"\^\{?(-?[1-4])\}?")
_AFTERWARDS = re.compile(r" (squared|cubed)(?![a-z])")
_SEPARATOR = re.compile(r" ?(?:\\cdot|\*|/|per(?![a-z]))? ?")


COUNTED = " (counted)"  # ends the name of a basic unit that is a noun


class Unit(NamedTuple):
    """A unit: `size` times the product of `powers`, which are sorted pairs of a basic unit and its exponent."""

    size: Fraction
    powers: tuple[tuple[str, int], ...]
    words: tuple[tuple[str, int], ...]  # sorted: one spelling of each of its factors, and the exponent

    @property
    def latex(self) -> str:
        """The one spelling of all units with the same factors."""
        return r"\cdot".join(
            rf"\text{{{word}}}" + (f"^{{{exponent}}}" if exponent != 1 else "") for word, exponent in self.words
        )


def read_unit(text: str) -> Unit | None:
    """The unit that a text names, such as `cm`, `sq. ft`, `kg\\cdot m/s^{2}` or `marbles`; None if it names none."""
    return _read(text.strip()) if len(text) <= _LONGEST else None


def is_currency(text: str) -> bool:
    """Whether a text names a currency, which may stand in front of its number."""
    unit = read_unit(text)
    return unit is not None and unit.powers[0][0] in MONEY


@lru_cache(maxsize=4096)
def _read(text: str) -> Unit | None:
    product: Unit | None = None
    text = text.removeprefix("US ").removesuffix(" old")
    for word, exponent in _factors(text):
        unit = _named(word)
        if unit is None:
            return None
        product = times(product or _ONE, unit, exponent)
    return product if product and product.powers else None


def _factors(text: str) -> Iterator[tuple[str, int]]:
    """The words of a unit with their exponents; ("", 0) where the text cannot go on as a unit."""
    end, below, power = 0, 1, 1
    while end < len(text):
        separator = _SEPARATOR.match(text, end)
        start = separator.end() if separator else end
        if separator and separator[0].strip() in ("/", "per"):
            below = -1
        item = _ITEM.match(text, start)
        if item is None:
            yield "", 0
            return
        end = item.end()
        word = item[0].rstrip(".") if item[0] != "Rs." else item[0]
        if word[:2] in ("平方", "立方") and len(word) > 2:
            word, end = word[:2], end - len(word) + 2
        if word.lower() in POWER_WORDS:
            if word.lower().endswith("ed") or power > 1:  # `meters squared` is read with its unit
                yield "", 0
                return
            power = POWER_WORDS[word.lower()]
            continue
        written = _EXPONENT.match(text, end)
        squared = _AFTERWARDS.match(text, end)
        exponent = int(written[1]) if written else POWER_WORDS[squared[1]] if squared else 1
        end = written.end() if written else squared.end() if squared else end
        yield word, below * power * exponent
        power = 1
    if power > 1:
        yield "", 0


def times(product: Unit, unit: Unit, exponent: int = 1) -> Unit:
    """The product of a unit and a power of another."""
    sums = []
    for ours, theirs in ((product.powers, unit.powers), (product.words, unit.words)):
        exponents = dict(ours)
        for name, power in theirs:
            exponents[name] = exponents.get(name, 0) + power * exponent
        sums.append(tuple(sorted((name, power) for name, power in exponents.items() if power)))
    return Unit(product.size * unit.size**exponent, *sums)


def _named(word: str) -> Unit | None:
    """The unit of one word; a word in the plural that is no known unit counts its things, and is a unit of its own."""
    word = word.replace("{", "").replace("}", "").replace(" ", "")
    for spelling in (word, word.lower()) if len(word) > 2 else (word,):
        if (unit := _spellings().get(spelling)) is not None:
            return unit
    noun = word.lower()
    if re.fullmatch(r"[a-z-]{3,}s", noun) and not noun.endswith(("ss", "us")) and noun not in NO_NOUN:
        return Unit(Fraction(1), ((noun + COUNTED, 1),), ((noun, 1),))
    return None


@cache
def _spellings() -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    basic: dict[str, Unit] = {}
    for line in TABLE.strip().splitlines():
        name, size, *rest = line.split()
        unit = Unit(Fraction(1), ((name, 1),), ())
        if size != "-":  # and a formula such as `g*m/second^2`
            above, _, under = rest.pop(0).partition("/")
            unit = Unit(Fraction(size), (), ())
            for sign, side in ((1, above), (-1, under)):
                for factor in filter(None, side.split("*")):
                    base, _, exponent = factor.partition("^")
                    unit = times(unit, basic[base], sign * int(exponent or 1))
        basic[name] = unit
        word = rest[0].removeprefix("~")
        for written in rest:
            spelling = written.removeprefix("~")
            units[spelling] = unit._replace(words=((word, 1),))
            for prefix, power in PREFIXES.items() if written != spelling else ():
                units.setdefault(prefix + spelling, _prefixed(unit, prefix + word, power))
            for prefix, power in PREFIX_WORDS.items() if len(spelling) > 3 else ():
                symbol = next(short for short, of_short in PREFIXES.items() if of_short == power)
                units.setdefault(prefix + spelling, _prefixed(unit, symbol + word, power))
    return units


def _prefixed(unit: Unit, word: str, power: int) -> Unit:
    return Unit(unit.size * Fraction(10) ** power, unit.powers, ((word, 1),))


_ONE = Unit(Fraction(1), (), ())
