"""Exact numbers and units in a normalised answer.

No floats are used and nothing is evaluated. The size of a value is bounded before the value is computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

MAX_CHARS = 2000  # of a text that is read as a number; also the most digits that a power may have
MAX_EXPONENT = 1000  # of ten, in scientific notation

_INTEGER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
_DECIMAL = rf"(?:{_INTEGER}(?:\.[0-9]*)?|\.[0-9]+)"
_EXPONENT = r"\{?([+-]?[0-9]{1,4})\}?"
_NUMBER = re.compile(r"([+-]*)([^%]*)(%?)")

# spelling -> unit. Single letters are variables; `answers.normalise` spells out those that \text{} marks as units.
_UNITS = {
    spelling: unit
    for unit, spellings in {
        "mm": "mm millimeter millimeters millimetre millimetres",
        "cm": "cm centimeter centimeters centimetre centimetres",
        "meters": "meter meters metre metres",
        "km": "km kilometer kilometers kilometre kilometres",
        "inches": "in inch inches",
        "feet": "ft foot feet",
        "yards": "yd yard yards",
        "miles": "mi mile miles",
        "mg": "mg milligram milligrams",
        "grams": "gram grams",
        "kg": "kg kilogram kilograms",
        "pounds": "lb lbs pound pounds",
        "ml": "ml mL milliliter milliliters millilitre millilitres",
        "liters": "liter liters litre litres",
        "seconds": "sec second seconds",
        "minutes": "min mins minute minutes",
        "hours": "hr hrs hour hours",
        "days": "day days",
        "weeks": "week weeks",
        "months": "month months",
        "years": "year years",
        "degrees": r"degree degrees ^\circ",
        "radians": "rad radian radians",
        "dollars": "dollar dollars",
        "cents": "cent cents",
        "units": "unit units",
        "km/h": "km/h kph",
        "mph": "mph",
        "m/s": "m/s",
    }.items()
    for spelling in spellings.split()
}
_SPELLINGS = "|".join(re.escape(s) for s in sorted(_UNITS, key=len, reverse=True))
_UNIT = re.compile(rf"(?:(square|cubic) )?({_SPELLINGS})(?:\^\{{?([23])\}}?)?")
_LONGEST_UNIT = 30  # characters
_BASE = re.compile(r"([0-9]+)_\{?([0-9]{1,2})\}?")
_POWERS = {None: "", "square": "^2", "cubic": "^3", "2": "^2", "3": "^3"}


def parse_number(text: str) -> Fraction | None:
    """The exact value of a normalised text that is a number literal and nothing else, or None.

    Literals are integers, thousands separators, decimals, repeating decimals, `a/b`, `\\frac{a}{b}`, mixed numbers
    (`3\\frac{1}{2}` is 7/2), scientific notation, a single power of integers, and percent (`50%` is 1/2). Power
    towers, sums, roots and names are not literals.
    """
    if len(text) > MAX_CHARS or (match := _NUMBER.fullmatch(text)) is None:
        return None
    signs, body, percent = match.groups()
    for pattern, read in _FORMS:
        if form := pattern.fullmatch(body):
            value = read(*form.groups())
            break
    else:
        return None
    if value is None:
        return None
    sign = -1 if signs.count("-") % 2 else 1
    return sign * value / (100 if percent else 1)


def split_unit(text: str) -> tuple[str, str | None]:
    """A normalised text without its unit, and the unit in a single spelling: `5cm` -> (`5`, `cm`).

    Degrees are a unit only of a number (`\\sin30^\\circ` is not 30 degrees). The base in `1011_{2}` counts as a unit.
    """
    if based := _BASE.fullmatch(text):
        return based[1], f"_{{{int(based[2])}}}"
    match = _trailing_unit(text)
    if match is None:
        return text, None
    body, unit = text[: match.start()].rstrip(), _UNITS[match[2]]
    if unit == "degrees" and parse_number(body) is None:
        return text, None
    return body, unit + (_POWERS[match[1]] or _POWERS[match[3]])


def _trailing_unit(text: str) -> re.Match[str] | None:
    """The unit that ends a text. It must follow a digit, a closing brace or a closing bracket: `x in` is no length."""
    for start in range(max(1, len(text) - _LONGEST_UNIT), len(text)):
        if text[:start].rstrip()[-1:] in "0123456789})" and (match := _UNIT.fullmatch(text, start)):
            return match
    return None


def _decimal(digits: str) -> Fraction:
    whole, _, part = digits.replace(",", "").partition(".")
    return Fraction(int(whole + part), 10 ** len(part))


def _scientific(mantissa: str, e: str | None, ten: str | None) -> Fraction | None:
    exponent = int(e or ten or "0")
    return _decimal(mantissa) * Fraction(10) ** exponent if abs(exponent) <= MAX_EXPONENT else None


def _ratio(numerator: str, denominator: str) -> Fraction | None:
    divisor = _signed(denominator)
    return _signed(numerator) / divisor if divisor else None


def _mixed(whole: str, numerator: str, denominator: str) -> Fraction | None:
    part = _ratio(numerator, denominator)
    return None if part is None else _decimal(whole) + part


def _repeating(whole: str, prefix: str, period: str) -> Fraction:
    """The value of `0.1\\overline{6}`: the digits with one period, minus the digits before it, over 99…900…0."""
    longer, shorter = int(whole + prefix + period), int(whole + prefix)
    return Fraction(longer - shorter, (10 ** len(period) - 1) * 10 ** len(prefix))


def _power(base: str, exponent: str) -> Fraction | None:
    value, n = _decimal(base), int(exponent)
    if len(base) * abs(n) > MAX_CHARS or (value == 0 and n <= 0):
        return None
    return value**n


def _signed(text: str) -> Fraction:
    return -_decimal(text[1:]) if text[0] == "-" else _decimal(text.lstrip("+"))


_FORMS: tuple[tuple[re.Pattern[str], Callable[..., Fraction | None]], ...] = (
    (re.compile(rf"({_DECIMAL})"), _decimal),
    (re.compile(rf"({_DECIMAL})/([+-]?{_DECIMAL})"), _ratio),
    (re.compile(rf"\\frac\{{([+-]?{_DECIMAL})\}}\{{([+-]?{_DECIMAL})\}}"), _ratio),
    (re.compile(rf"({_INTEGER})\\frac\{{({_DECIMAL})\}}\{{({_DECIMAL})\}}"), _mixed),
    (re.compile(rf"({_INTEGER}) ({_INTEGER})/({_INTEGER})"), _mixed),
    (re.compile(rf"({_DECIMAL})(?:[eE]([+-]?[0-9]{{1,4}})|\\cdot10\^{_EXPONENT})"), _scientific),
    (re.compile(rf"({_INTEGER})\^{_EXPONENT}"), _power),
    (re.compile(r"([0-9]+)\.([0-9]*)\\overline\{([0-9]+)\}"), _repeating),
)
