r"""The fourth layer of reading an answer: numbers, exact, with their units; times of the day, ratios, endless decimals.

The texts are normalised. No floats are used and nothing is evaluated. The size of a value is bounded before the value
is computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from core.grading.number_words import CARDINALS, MAGNITUDES
from core.grading.units import Unit, is_currency, read_unit, times

MAX_CHARS = 2000  # of a text that is read as a number; also the most digits that a power may have
MAX_EXPONENT = 1000  # of ten, in scientific notation

_INTEGER = r"[0-9]+"
_DECIMAL = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_EXPONENT = r"\{?([+-]?[0-9]{1,4})\}?"
_NUMBER = re.compile(r"([+-]*)(.*?)(%?)")
_MAGNITUDE = re.compile(rf"(.+)\\text\{{({'|'.join(MAGNITUDES)})\}}")
_SIGN = r"(?:\\\$|\\pounds|\\euro|[€£¥₹₩₽₫฿₺₴₦₱])"
_IN_TEXT = r"\\text\{[^{}]*\}(?:\^\{-?[1-4]\})?"
_TAIL = re.compile(
    rf"(?:\^\{{\\circ\}}[CF]?|\\text\{{(?P<magnitude>{'|'.join(MAGNITUDES)}) (?P<rest>[^{{}}]+)\}}"
    rf"|{_SIGN}|{_IN_TEXT})?"
    rf"(?:(?:\\cdot|/)?{_IN_TEXT})*|\\frac\{{{_IN_TEXT}\}}\{{{_IN_TEXT}\}}"
)
_TAIL_START = re.compile(rf"(?<=[0-9)}}%!A-Za-z])(?:\^\{{\\circ\}}|/?\\text\{{|{_SIGN}|\\frac\{{\\text)")
_LACKS_ARGUMENT = re.compile(r".*\\(?:frac(?:\{[^{}]*\})?|sqrt(?:\[[^]]*\])?)", re.DOTALL)
_PREFIX = re.compile(rf"([+-]?)([A-Z]{{0,2}}{_SIGN}|\\text\{{[A-Za-z]{{2,3}}\}})([+-]?(?:[0-9.(]|\\(?:frac|sqrt)).*)")
_BASED = re.compile(
    r"(?:\(([0-9A-Z]+)\)|([0-9][0-9A-Z]*|[0-9A-Z]*[0-9]|[A-Z]{2,}(?=_\{1[1-9]\})))_\{(?:\(?([0-9]{1,2})\)?|(?:\\text\{)?([a-z]{3,})\}?)\}"
)
_PART = r"[0-9]+ ?(?:\\text\{[A-Za-z]+\}|[A-Za-z]+)"
_COMPOUND = re.compile(rf"(?:{_PART} ?){{1,3}}[0-9.]+\\text\{{[A-Za-z]+\}}")
_COMPOUND_PART = re.compile(rf"({_DECIMAL}) ?(?:\\text\{{([A-Za-z]+)\}}|([A-Za-z]+))")
_CLOCK = re.compile(r"(1?[0-9]|2[0-4])(?::([0-5][0-9]))?(?: ?(?:\\text\{)?([ap])\.?m\}?)?", re.IGNORECASE)
_RATIO = re.compile(rf"{_DECIMAL}(?::{_DECIMAL})+")
_TO = re.compile(rf"({_DECIMAL})(?:to |\\text\{{to\}})({_DECIMAL})$")
_ENDLESS = re.compile(r"(-?)([0-9]*\.[0-9]+)\.\.\.")


class Quantity(NamedTuple):
    """A text without its unit, the exact value if that is a number, and the unit if there is one."""

    body: str
    number: Fraction | None
    unit: Unit | None


def parse_number(text: str) -> Fraction | None:
    r"""The exact value of a normalised text that is a number literal and nothing else, or None.

    Literals are integers, decimals, repeating decimals, `a/b`, `\frac{a}{b}`, mixed numbers (`3\frac{1}{2}` is 7/2),
    scientific notation, a single power of integers, each of them as percent (`50%` is 1/2) or with a word such as
    `\text{million}`. Power towers, sums, roots and names are not literals.
    """
    if len(text) > MAX_CHARS:
        return None
    factor = Fraction(1)
    if text.endswith("}") and (magnitude := _MAGNITUDE.fullmatch(text)):
        text, factor = magnitude[1], Fraction(MAGNITUDES[magnitude[2]])
    if (match := _NUMBER.fullmatch(text)) is None:
        return None
    signs, body, percent = match.groups()
    if body.startswith("(") and body.endswith(")"):
        inner = body[1:-1]  # `-(-5)`
        value = parse_number(inner) if "(" not in inner and ")" not in inner else None
        if value is None or (signs.count("-") == 0 and percent):
            return None
        return -value if signs.count("-") % 2 else value
    for pattern, read in _FORMS:
        if form := pattern.fullmatch(body):
            value = read(*form.groups())
            break
    else:
        return None
    if value is None:
        return None
    sign = -1 if signs.count("-") % 2 else 1
    return sign * factor * value / (100 if percent else 1)


@lru_cache(maxsize=16_384)
def read_quantity(text: str) -> Quantity:
    r"""A normalised text as a quantity: `5\text{cm}`, `\$5`, `90^{\circ}`, `(1011)_{2}`, or any text without a unit.

    Degrees are a unit only of a number (`\sin30^{\circ}` is not 30 degrees). A base counts as a unit.
    """
    if read_clock(text):
        return Quantity(text, None, None)
    if based := _BASED.fullmatch(text):
        base = int(based[3]) if based[3] else CARDINALS.get(based[4], 0)
        if 2 <= base <= 36:
            # Digits with a base are compared with others of this base as texts; `1011_2` equals 1011, which leaves the
            # base out.
            digits, name = based[1] or based[2], f"base {base}"
            in_base = Unit(Fraction(1), ((name, 1),), ((name, 1),))
            if digits.isdigit():
                return Quantity(digits, Fraction(digits), in_base)
            return Quantity(rf"\text{{{digits}}}", None, in_base)
    if (prefixed := _PREFIX.fullmatch(text)) and is_currency(prefixed[2].removeprefix(r"\text{").removesuffix("}")):
        body = (prefixed[1] + prefixed[3]).removeprefix("+")
        # `\$5k` may be 5000 dollars; behind a broken `\frac`, the unit would be its argument.
        if body[-1:] in tuple("kKMB") or _LACKS_ARGUMENT.fullmatch(body):
            return Quantity(text, None, None)
        unit = read_unit(prefixed[2].removeprefix(r"\text{").removesuffix("}"))
        inner = read_quantity(body)
        if unit and inner.unit and all(exponent < 0 for _, exponent in inner.unit.powers):  # `\$15\text{per hour}`
            return inner._replace(unit=times(unit, inner.unit))
        return Quantity(text, None, None) if inner.unit not in (None, unit) else inner._replace(unit=unit)
    return _compound(text) or _with_tail(text)


def _compound(text: str) -> Quantity | None:
    r"""A quantity in several units of one dimension, such as `5ft6\text{in}`, in the last of them, or None."""
    if len(text) > MAX_CHARS or _COMPOUND.fullmatch(text) is None:
        return None
    parts = [(_decimal(number), read_unit(in_text or bare)) for number, in_text, bare in _COMPOUND_PART.findall(text)]
    units = [unit for _, unit in parts if unit is not None]
    if len(units) < len(parts):
        return None
    if not all(above.size > below.size and above.powers == below.powers for above, below in pairwise(units)):
        return Quantity(text, None, None)  # `3lb4oz`, where the ounces may be fluid ones: no product of symbols either
    total = sum((value * unit.size for (value, _), unit in zip(parts, units, strict=True)), Fraction(0))
    # A reader who leaves the unit out may mean the first one or the last.
    return Quantity(str(total / units[0].size), total / units[-1].size, units[-1])


def _with_tail(text: str) -> Quantity:
    for start in _TAIL_START.finditer(text):
        tail = _TAIL.fullmatch(text, start.start())
        if tail is None:
            continue
        body, magnitude = text[: start.start()], tail["magnitude"]
        if ", " in body and r"\text{" in body:  # `6 apples, 2 oranges` are not all oranges
            continue
        written = tail["rest"] + text[tail.end("rest") + 1 :] if magnitude else text[start.start() :]
        if written.startswith(r"\frac"):
            above, below = re.findall(_IN_TEXT, written)
            written = f"{above}/{below}"
        name = re.sub(r"\\text\{([^{}]*)\}", r" \1", written).replace(" /", "/").replace("/ ", "/").strip()
        unit = read_unit(name) or (read_unit(f"{name}s") if body == "1" and name.islower() else None)
        if unit is None:
            continue
        number = parse_number(body + (rf"\text{{{magnitude}}}" if magnitude else ""))
        if (number is None and unit.powers == (("degree", 1),)) or (magnitude and number is None):
            continue
        return Quantity(body, number, unit)
    return Quantity(text, parse_number(text), None)


def latex(quantity: Quantity) -> str:
    """One spelling for all quantities with the same number and unit."""
    body = quantity.body if quantity.number is None else str(quantity.number)
    if quantity.unit is None:
        return body
    name = quantity.unit.words[0][0]
    if name.startswith("base "):
        letters = f"({quantity.body.removeprefix(chr(92) + 'text{').removesuffix('}')})"
        return f"{letters if quantity.number is None else body}_{{{name.removeprefix('base ')}}}"
    return body + quantity.unit.latex


class Clock(NamedTuple):
    """A time of the day. `half` is "a", "p", or "" if the text does not say."""

    hour: int
    minute: int
    half: str

    def minutes(self) -> set[int]:
        """The minutes since midnight that the text may mean."""
        hours = {self.hour % 12} if self.half == "a" else {self.hour % 12 + 12} if self.half == "p" else {self.hour}
        if not self.half and self.hour <= 12:
            hours |= {self.hour % 12, self.hour % 12 + 12}
        return {60 * hour + self.minute for hour in hours}


def read_clock(text: str) -> Clock | None:
    """The time of the day that a text gives, such as `9:30`, `9:30\\text{pm}` or `9pm`; or None."""
    match = _CLOCK.fullmatch(text) if len(text) < 20 else None
    if match is None or (match[2] is None and match[3] is None):
        return None
    hour, half = int(match[1]), (match[3] or "").lower()
    return Clock(hour, int(match[2] or 0), half) if not half or 1 <= hour <= 12 else None


def read_ratio(text: str) -> list[Fraction] | None:
    """The terms of a ratio such as `2:3`; or None."""
    text = _TO.sub(r"\1:\2", text)
    return [_decimal(term) for term in text.split(":")] if len(text) < MAX_CHARS and _RATIO.fullmatch(text) else None


def read_endless(text: str) -> tuple[Fraction, Fraction] | None:
    """Between which two values an endless decimal lies: `0.333...` is above 0.333 and at most 0.334; or None."""
    match = _ENDLESS.fullmatch(text) if len(text) < MAX_CHARS else None
    if match is None:
        return None
    low = _decimal(match[2])
    ends = (low, low + Fraction(1, 10 ** len(match[2].partition(".")[2])))
    return (-ends[1], -ends[0]) if match[1] else ends


def _decimal(digits: str) -> Fraction:
    whole, _, part = digits.partition(".")
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
    r"""The value of `0.1\overline{6}`: the digits with one period, minus the digits before it, over 99…900…0."""
    longer, shorter = int(whole + prefix + period), int(whole + prefix or "0")
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
    (re.compile(rf"({_INTEGER})\\frac\{{({_INTEGER})\}}\{{({_INTEGER})\}}"), _mixed),
    (re.compile(rf"({_INTEGER}) ({_INTEGER})/({_INTEGER})"), _mixed),
    (re.compile(rf"({_DECIMAL})(?:[eE]([+-]?[0-9]{{1,4}})|\\cdot10\^{_EXPONENT})"), _scientific),
    (re.compile(rf"({_INTEGER})\^{_EXPONENT}"), _power),
    (re.compile(r"([0-9]*)\.([0-9]*)\\overline\{([0-9]+)\}"), _repeating),
)
